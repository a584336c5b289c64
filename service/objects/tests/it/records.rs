//! Records come back as they were, and any bytes are taken without a panic; the documented kinds
//! are those of the code.
use std::sync::Arc;

use lumpscope_objects::id::LumpKind;
use lumpscope_objects::juicefs::Layout;
use lumpscope_objects::record::{
    Body, BucketRecord, ObjectRecord, PartRecord, Record, Segment, SettingRecord, UploadRecord,
    VolumeRecord,
};
use lumpscope_objects::{ETag, ObjectInfo, Pairs};
use proptest::prelude::*;

fn pairs() -> impl Strategy<Value = Pairs> {
    prop::collection::vec((".{0,20}", ".{0,20}"), 0..4)
}

fn segment() -> impl Strategy<Value = Segment> {
    (any::<u64>(), 1_u64..1 << 50, 1_u32..).prop_map(|(number, size, piece)| Segment {
        number,
        size,
        piece,
    })
}

fn body() -> impl Strategy<Value = Body> {
    let info = (
        any::<([u8; 16], u16, u64)>(),
        any::<Option<u32>>(),
        prop::option::of(".{0,30}"),
        pairs(),
        pairs(),
    );
    let segments = prop::collection::vec(segment(), 0..5);
    (any::<u64>(), info, segments).prop_map(|(number, info, segments)| {
        let ((md5, parts, modified_ms), crc32c, content_type, metadata, attributes) = info;
        let info = ObjectInfo {
            size: segments.iter().map(|segment| segment.size).sum(),
            etag: ETag { md5, parts },
            modified_ms,
            crc32c,
            content_type,
            metadata,
            attributes,
        };
        Body {
            number,
            info,
            segments,
        }
    })
}

proptest! {
    #[test]
    fn objects_come_back(body in body(), bucket in any::<u32>(), key in ".{0,100}") {
        let bytes = body.encode();
        prop_assert_eq!(Body::decode(&bytes).unwrap(), body.clone());
        let (number, head) = Body::decode_head(&bytes).unwrap();
        prop_assert_eq!((number, head.size, head.etag), (body.number, body.info.size, body.info.etag));
        let record = ObjectRecord { bucket, key, body: Arc::from(bytes) };
        let encoded = Record::Object(record.clone()).encode();
        prop_assert_eq!(ObjectRecord::decode(&encoded).unwrap(), record);
        // Nothing shorter is one.
        for len in 0..encoded.len() {
            prop_assert!(ObjectRecord::decode(&encoded[..len]).is_err());
        }
    }

    #[test]
    fn the_others_come_back(
        numbers in any::<(u32, u64, u64)>(),
        text in ".{0,60}",
        content_type in prop::option::of(".{0,30}"),
        (metadata, attributes) in (pairs(), pairs()),
        segment in segment(),
        (md5, crc32c) in any::<([u8; 16], Option<u32>)>(),
    ) {
        let (bucket, created_ms, token) = numbers;
        let it = BucketRecord { created_ms, name: text.clone() };
        prop_assert_eq!(BucketRecord::decode(&Record::Bucket(it.clone()).encode()).unwrap(), it);
        let it = SettingRecord { created_ms, text: text.clone() };
        prop_assert_eq!(SettingRecord::decode(&Record::Setting(it.clone()).encode()).unwrap(), it);
        for layout in Layout::ALL {
            let it = VolumeRecord { bucket, prefix: text.clone(), layout };
            prop_assert_eq!(VolumeRecord::decode(&Record::Volume(it.clone()).encode()).unwrap(), it);
        }
        let it = UploadRecord { bucket, key: text, created_ms, token, content_type, metadata, attributes: attributes.clone() };
        prop_assert_eq!(UploadRecord::decode(&Record::Upload(it.clone()).encode()).unwrap(), it);
        let it = PartRecord { modified_ms: created_ms, md5, crc32c, segment, attributes };
        prop_assert_eq!(PartRecord::decode(&Record::Part(it.clone()).encode()).unwrap(), it);
    }

    #[test]
    fn any_bytes_are_taken(mut bytes in prop::collection::vec(any::<u8>(), 0..200), versioned in any::<bool>()) {
        if let (true, Some(first)) = (versioned, bytes.first_mut()) {
            *first = lumpscope_objects::record::VERSION;
        }
        let _ = (Body::decode(&bytes), BucketRecord::decode(&bytes), ObjectRecord::decode(&bytes));
        let _ = (UploadRecord::decode(&bytes), PartRecord::decode(&bytes), VolumeRecord::decode(&bytes));
        let _ = SettingRecord::decode(&bytes);
    }
}

#[test]
fn the_documented_kinds_are_those_of_the_code() {
    let doc = include_str!("../../../../docs/objects.md");
    let table = doc.split("<!-- kinds -->").nth(1).unwrap();
    let rows = table
        .trim_start()
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let documented: Vec<(String, u8)> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            (cells[1].to_owned(), cells[2].parse().unwrap())
        })
        .collect();
    let mut kinds: Vec<_> = LumpKind::ALL
        .map(|kind| (format!("{kind:?}"), kind.code()))
        .to_vec();
    kinds.sort_by_key(|kind| kind.1);
    assert_eq!(documented, kinds);
    assert!(doc.contains(&format!("`{:x}`", lumpscope_objects::id::MARK)));
}
