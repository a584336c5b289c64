//! FORMAT.md and the constants of the code say the same.

use lumpscope_engine::format::{
    bad_places, checkpoint, claim, copies, header, journal_header, label, mark, minfs, portion,
    record, run, seal, sums, trailer, unfinished,
};
use lumpscope_engine::units::BlockSize;

const DOCUMENT: &str = include_str!("../../FORMAT.md");

/// The rows of the table after `<!-- marker -->`, cell by cell, without its two heading lines.
fn table(marker: &str) -> Vec<Vec<String>> {
    let (_, rest) = DOCUMENT
        .split_once(&format!("<!-- {marker} -->\n"))
        .unwrap_or_else(|| panic!("FORMAT.md has no table \"{marker}\""));
    let rows = rest
        .lines()
        .take_while(|line| line.starts_with('|'))
        .skip(2);
    rows.map(|row| {
        row.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    })
    .collect()
}

fn assert_fields(marker: &str, fields: &[(&str, usize)]) {
    let written: Vec<Vec<String>> = table(marker).iter().map(|row| row[..3].to_vec()).collect();
    let mut offset = 0;
    let expected: Vec<Vec<String>> = fields
        .iter()
        .map(|(name, len)| {
            let row = vec![offset.to_string(), len.to_string(), (*name).to_owned()];
            offset += len;
            row
        })
        .collect();
    assert_eq!(written, expected, "table \"{marker}\" of FORMAT.md");
}

#[test]
fn every_structure_is_drawn_as_it_is_coded() {
    assert_fields("fields: header", header::FIELDS);
    assert_fields("fields: journal header", journal_header::FIELDS);
    assert_fields("fields: scrub mark", journal_header::SCRUB_MARK_FIELDS);
    assert_fields("fields: checked copy", copies::FIELDS);
    assert_fields("fields: bad places", bad_places::FIELDS);
    assert_fields("fields: unfinished copy", unfinished::FIELDS);
    assert_fields("fields: label", label::FIELDS);
    assert_fields("fields: claim", claim::FIELDS);
    assert_fields("fields: seal", seal::FIELDS);
    assert_fields("fields: unsettled seal", seal::UNSETTLED_FIELDS);
    assert_fields("fields: seal with a run", run::SEAL_FIELDS);
    assert_fields("fields: link", run::LINK_FIELDS);
    assert_fields("fields: checkpoint header", checkpoint::HEADER_FIELDS);
    assert_fields("fields: checkpoint chunk", checkpoint::CHUNK_FIELDS);
    assert_fields("fields: checkpoint row", checkpoint::ROW_FIELDS);
    assert_fields("fields: lump end", trailer::FIELDS);
    assert_fields("fields: mark", mark::FIELDS);
    assert_fields("fields: minfs superblock", minfs::SUPERBLOCK_FIELDS);
    assert_fields("fields: minfs inode", minfs::INODE_FIELDS);
    assert_fields("fields: minfs directory entry", minfs::DIR_ENTRY_FIELDS);
}

#[test]
fn every_record_has_its_tag_and_length() {
    let written: Vec<Vec<String>> = table("records")
        .iter()
        .map(|row| row[..3].to_vec())
        .collect();
    let expected: Vec<Vec<String>> = record::RECORDS
        .iter()
        .map(|(name, tag, len)| vec![(*name).to_owned(), tag.to_string(), len.to_string()])
        .collect();
    assert_eq!(written, expected);
}

#[test]
fn every_limit_is_the_codes() {
    let written: Vec<String> = table("constants")
        .into_iter()
        .map(|row| row[1].clone())
        .collect();
    let expected = [
        trailer::max_payload(BlockSize::DEFAULT),
        trailer::max_payload(BlockSize::MIN),
        record::MAX_EMBEDDED_LEN as u64,
        trailer::OVERHEAD_LEN as u64,
        trailer::MAX_OVERHEAD_LEN as u64,
        sums::MIN_CHUNK_LEN,
        sums::MAX_CHUNKS,
        mark::REACH as u64,
        u64::from(u16::MAX),
        portion::MAX_BLOCK_INDEX,
        header::MAX_JOURNAL_LEN,
        header::MAX_DATA_LEN,
        minfs::FILE_OFFSET,
    ];
    assert_eq!(written, expected.map(|value| value.to_string()));
}

#[test]
fn checkpoints_have_the_sizes_that_are_told() {
    let (_, section) = DOCUMENT
        .split_once("## 12. The checkpoint of the index")
        .expect("section 12");
    let told = [
        ("4096 bytes for its header", checkpoint::HEADER_SPACE),
        ("chunks of 262144 bytes", checkpoint::CHUNK_LEN as u64),
        ("up to 8455 rows", checkpoint::ROWS_PER_CHUNK as u64),
        ("16384 bytes of data", checkpoint::RESERVED_LUMP_LEN),
        ("31 bytes each", checkpoint::ROW_LEN as u64),
    ];
    for (words, value) in told {
        assert!(section.contains(words), "{words}");
        assert!(words.contains(&value.to_string()), "{words}: {value}");
    }
}

#[test]
fn every_section_that_the_code_cites_exists() {
    let sections: Vec<&str> = DOCUMENT
        .lines()
        .filter_map(|line| {
            line.trim_start_matches('#')
                .strip_prefix(' ')
                .filter(|_| line.starts_with("##"))
        })
        .filter_map(|heading| heading.split(' ').next())
        .map(|number| number.trim_end_matches('.'))
        .collect();
    let mut cited = 0;
    for file in sources(std::path::Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src"
    ))) {
        let text = std::fs::read_to_string(&file).expect("readable");
        for rest in text.split("FORMAT.md section").skip(1) {
            let number: String = rest
                .trim_start_matches('s')
                .trim_start()
                .chars()
                .take_while(|c| c.is_ascii_digit() || *c == '.')
                .collect();
            let number = number.trim_end_matches('.');
            assert!(
                sections.contains(&number),
                "{}: section {number:?}",
                file.display()
            );
            cited += 1;
        }
    }
    assert!(cited > 10, "{cited} citations found");
}

fn sources(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).expect("readable");
    entries
        .map(|entry| entry.expect("readable").path())
        .flat_map(|path| {
            if path.is_dir() {
                sources(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}
