//! Drives with names.

use std::borrow::Cow;

use super::{Cited, Drive, MS, Source};

const MB: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

const fn cite(parameter: &'static str, source: Source, note: &'static str) -> Cited {
    Cited {
        parameter: Cow::Borrowed(parameter),
        source,
        note: Cow::Borrowed(note),
    }
}

const fn guess(parameter: &'static str, note: &'static str) -> Cited {
    cite(parameter, Source::Guess, note)
}

/// Guesses for numbers that no maker publishes, used for all drives.
macro_rules! sources {
    ($($cited:expr),* $(,)?) => {
        Cow::Borrowed(&[
            guess("zones", "fewer than drives have; the rate falls linearly all the same"),
            guess("head_switch_ns", "a little less than a seek to the next track"),
            guess("track_skew_ns", "head switch and a margin"),
            guess("cylinder_skew_ns", "track to track and a margin"),
            guess("overhead_ns", "electronics of drives of that time"),
            guess("destage_at_bytes", "a third of the cache; in the published tables one read in \
                   twenty waits 75 to 133 ms, which is this much being written"),
            guess("destage_run_bytes", "half the cache"),
            guess("destage_idle_ns", "unknown"),
            guess("read_segments", "unknown"),
            $($cited,)*
        ])
    };
}

const SEEK_SIBLING: &str = "Constellation.2, 7200 rpm, 1 TB";

const ST1000DM003: Drive = Drive {
    name: Cow::Borrowed("st1000dm003"),
    title: Cow::Borrowed("Seagate Barracuda 1 TB, 7200 rpm, one platter, 512e"),
    sectors: 1_953_525_168,
    physical_bytes: 4096,
    rpm: 7200,
    heads: 2,
    actuators: 1,
    zones: 24,
    outer_rate: 210 * MB,
    inner_rate: 100 * MB,
    track_to_track_ns: MS,
    average_seek_ns: 8_500_000,
    full_stroke_ns: None,
    write_settle_ns: MS,
    head_switch_ns: 700_000,
    track_skew_ns: 750_000,
    cylinder_skew_ns: 1_050_000,
    overhead_ns: 100_000,
    bus_rate: 550 * MB,
    cache_bytes: 64 * MIB,
    destage_at_bytes: 21 * MIB,
    destage_run_bytes: 32 * MIB,
    destage_idle_ns: 50 * MS,
    read_ahead_bytes: 8 * MIB,
    read_segments: 8,
    band_bytes: 0,
    media_cache_bytes: 0,
    clean_idle_ns: 0,
    sources: sources![
        cite("actuators", Source::Derived, "one, as nearly all drives"),
        cite("sectors", Source::Tables, "hdparm -I of the drive"),
        cite("physical_bytes", Source::Tables, "hdparm -I of the drive"),
        cite("rpm", Source::Tables, "hdparm -I of the drive"),
        cite(
            "heads",
            Source::Sibling,
            "1 TB a platter, as reviews of the family say"
        ),
        cite(
            "outer_rate",
            Source::Sibling,
            "successor ST1000DM010: 210 MB/s"
        ),
        cite(
            "inner_rate",
            Source::Derived,
            "so that the tracks are as dense as its siblings': \
              320,800 to 350,000 cylinders"
        ),
        guess("track_to_track_ns", "siblings have 0.2 to 1 ms"),
        cite(
            "average_seek_ns",
            Source::Sibling,
            "data sheet of the family: below 8.5 ms"
        ),
        cite("full_stroke_ns", Source::Derived, "the curve's end"),
        cite(
            "write_settle_ns",
            Source::Sibling,
            "Deskstar 7K1000.C: 8.5 ms read, 9.5 ms write"
        ),
        guess("bus_rate", "SATA 6 Gb/s without its coding and framing"),
        cite(
            "cache_bytes",
            Source::Sibling,
            "successor ST1000DM010: 64 MB"
        ),
        guess("read_ahead_bytes", "an eighth of the cache"),
    ],
};

const ST1000DM003_TABLES: Drive = Drive {
    name: Cow::Borrowed("st1000dm003-tables"),
    title: Cow::Borrowed("the ST1000DM003 of the published tables, which is faster than its brief"),
    sectors: 1_953_525_168,
    physical_bytes: 4096,
    rpm: 7200,
    heads: 2,
    actuators: 1,
    zones: 24,
    outer_rate: 230 * MB,
    inner_rate: 110 * MB,
    track_to_track_ns: MS,
    average_seek_ns: 8_500_000,
    full_stroke_ns: None,
    write_settle_ns: MS,
    head_switch_ns: 700_000,
    track_skew_ns: 750_000,
    cylinder_skew_ns: 1_050_000,
    overhead_ns: 100_000,
    bus_rate: 550 * MB,
    cache_bytes: 64 * MIB,
    destage_at_bytes: 21 * MIB,
    destage_run_bytes: 32 * MIB,
    destage_idle_ns: 50 * MS,
    read_ahead_bytes: 8 * MIB,
    read_segments: 8,
    band_bytes: 0,
    media_cache_bytes: 0,
    clean_idle_ns: 0,
    sources: sources![
        cite("actuators", Source::Derived, "one, as nearly all drives"),
        cite("sectors", Source::Tables, "hdparm -I of the drive"),
        cite("physical_bytes", Source::Tables, "hdparm -I of the drive"),
        cite("rpm", Source::Tables, "hdparm -I of the drive"),
        cite(
            "heads",
            Source::Sibling,
            "1 TB a platter, as reviews of the family say"
        ),
        cite(
            "outer_rate",
            Source::Tables,
            "2000 writes of 2 MiB in 18.2 s"
        ),
        cite(
            "inner_rate",
            Source::Derived,
            "the same share of the outer rate as without -tables"
        ),
        guess("track_to_track_ns", "siblings have 0.2 to 1 ms"),
        cite(
            "average_seek_ns",
            Source::Sibling,
            "data sheet of the family: below 8.5 ms"
        ),
        cite("full_stroke_ns", Source::Derived, "the curve's end"),
        cite(
            "write_settle_ns",
            Source::Sibling,
            "Deskstar 7K1000.C: 8.5 ms read, 9.5 ms write"
        ),
        guess("bus_rate", "SATA 6 Gb/s without its coding and framing"),
        cite(
            "cache_bytes",
            Source::Sibling,
            "successor ST1000DM010: 64 MB"
        ),
        guess("read_ahead_bytes", "an eighth of the cache"),
    ],
};

const ST4000NM0023: Drive = Drive {
    name: Cow::Borrowed("st4000nm0023"),
    title: Cow::Borrowed("Seagate Constellation ES.3 4 TB, 7200 rpm, five platters"),
    sectors: 7_814_037_168,
    physical_bytes: 512,
    rpm: 7200,
    heads: 10,
    actuators: 1,
    zones: 24,
    outer_rate: 175 * MB,
    inner_rate: 83 * MB,
    track_to_track_ns: 230_000,
    average_seek_ns: 7_500_000,
    full_stroke_ns: Some(17_100_000),
    write_settle_ns: MS,
    head_switch_ns: 700_000,
    track_skew_ns: 750_000,
    cylinder_skew_ns: 750_000,
    overhead_ns: 100_000,
    bus_rate: 600 * MB,
    cache_bytes: 128 * MIB,
    destage_at_bytes: 42 * MIB,
    destage_run_bytes: 64 * MIB,
    destage_idle_ns: 50 * MS,
    read_ahead_bytes: 16 * MIB,
    read_segments: 8,
    band_bytes: 0,
    media_cache_bytes: 0,
    clean_idle_ns: 0,
    sources: sources![
        cite("actuators", Source::Derived, "one, as nearly all drives"),
        cite(
            "sectors",
            Source::Derived,
            "4 TB by the usual formula of capacities"
        ),
        cite(
            "physical_bytes",
            Source::Manual,
            "sectors of 512, 520 or 528 bytes"
        ),
        cite("rpm", Source::Manual, "7200"),
        cite("heads", Source::Manual, "10"),
        cite("outer_rate", Source::Manual, "sustained 83 to 175 MB/s"),
        cite("inner_rate", Source::Manual, "sustained 83 to 175 MB/s"),
        cite("track_to_track_ns", Source::Sibling, SEEK_SIBLING),
        cite("average_seek_ns", Source::Sibling, SEEK_SIBLING),
        cite("full_stroke_ns", Source::Sibling, SEEK_SIBLING),
        cite("write_settle_ns", Source::Sibling, SEEK_SIBLING),
        cite("bus_rate", Source::Manual, "600 MB/s a port"),
        guess("cache_bytes", "128 MB, as drives of its class have"),
        guess("read_ahead_bytes", "an eighth of the cache"),
    ],
};

const ST20000NM007D: Drive = Drive {
    name: Cow::Borrowed("st20000nm007d"),
    title: Cow::Borrowed("Seagate Exos X20 20 TB, 7200 rpm, ten platters, 512e"),
    sectors: 39_063_650_304,
    physical_bytes: 4096,
    rpm: 7200,
    heads: 20,
    actuators: 1,
    zones: 24,
    outer_rate: 285 * MB,
    inner_rate: 135 * MB,
    track_to_track_ns: 230_000,
    average_seek_ns: 8_000_000,
    full_stroke_ns: None,
    write_settle_ns: MS,
    head_switch_ns: 700_000,
    track_skew_ns: 750_000,
    cylinder_skew_ns: 750_000,
    overhead_ns: 100_000,
    bus_rate: 550 * MB,
    cache_bytes: 256 * MIB,
    destage_at_bytes: 85 * MIB,
    destage_run_bytes: 128 * MIB,
    destage_idle_ns: 50 * MS,
    read_ahead_bytes: 32 * MIB,
    read_segments: 8,
    band_bytes: 0,
    media_cache_bytes: 0,
    clean_idle_ns: 0,
    sources: sources![
        cite("actuators", Source::Derived, "one, as nearly all drives"),
        cite(
            "sectors",
            Source::Manual,
            "its own answer: 20,000,588,955,648 bytes"
        ),
        cite("physical_bytes", Source::Manual, "its own answer"),
        cite("rpm", Source::Manual, "7200"),
        cite("heads", Source::Derived, "ten platters"),
        cite("outer_rate", Source::Manual, "sustained up to 285 MB/s"),
        cite(
            "inner_rate",
            Source::Derived,
            "as much slower as the Constellation ES.3's: 0.47"
        ),
        cite("track_to_track_ns", Source::Sibling, SEEK_SIBLING),
        guess("average_seek_ns", "between 7.5 and 8.5 ms of its elders"),
        cite("full_stroke_ns", Source::Derived, "the curve's end"),
        guess("write_settle_ns", "as its elders"),
        guess("bus_rate", "SATA 6 Gb/s without its coding and framing"),
        cite("cache_bytes", Source::Manual, "256 MB"),
        guess("read_ahead_bytes", "an eighth of the cache"),
    ],
};

const ST3600057SS: Drive = Drive {
    name: Cow::Borrowed("st3600057ss"),
    title: Cow::Borrowed("Seagate Cheetah 15K.7 600 GB, 15000 rpm, four platters"),
    sectors: 1_172_123_568,
    physical_bytes: 512,
    rpm: 15_000,
    heads: 8,
    actuators: 1,
    zones: 24,
    outer_rate: 204 * MB,
    inner_rate: 122 * MB,
    track_to_track_ns: 200_000,
    average_seek_ns: 3_400_000,
    full_stroke_ns: Some(6_600_000),
    write_settle_ns: 500_000,
    head_switch_ns: 400_000,
    track_skew_ns: 450_000,
    cylinder_skew_ns: 450_000,
    overhead_ns: 50_000,
    bus_rate: 600 * MB,
    cache_bytes: 16 * MIB,
    destage_at_bytes: 5 * MIB,
    destage_run_bytes: 8 * MIB,
    destage_idle_ns: 50 * MS,
    read_ahead_bytes: 2 * MIB,
    read_segments: 8,
    band_bytes: 0,
    media_cache_bytes: 0,
    clean_idle_ns: 0,
    sources: sources![
        cite("actuators", Source::Derived, "one, as nearly all drives"),
        cite(
            "sectors",
            Source::Derived,
            "600 GB by the usual formula of capacities"
        ),
        cite(
            "physical_bytes",
            Source::Manual,
            "sectors of 512, 520 or 528 bytes"
        ),
        cite("rpm", Source::Manual, "rotational latency 2.0 ms"),
        guess("heads", "four platters"),
        cite("outer_rate", Source::Manual, "sustained 122 to 204 MB/s"),
        cite("inner_rate", Source::Manual, "sustained 122 to 204 MB/s"),
        guess(
            "track_to_track_ns",
            "what is commonly said of the model; its manual was not seen"
        ),
        guess(
            "average_seek_ns",
            "what is commonly said of the model; its manual was not seen"
        ),
        guess(
            "full_stroke_ns",
            "what is commonly said of the model; its manual was not seen"
        ),
        guess(
            "write_settle_ns",
            "what is commonly said of the model; its manual was not seen"
        ),
        cite("bus_rate", Source::Manual, "600 MB/s a port"),
        guess(
            "cache_bytes",
            "what is commonly said of the model; its manual was not seen"
        ),
        guess("read_ahead_bytes", "an eighth of the cache"),
    ],
};

const HTS543232: Drive = Drive {
    name: Cow::Borrowed("hts543232"),
    title: Cow::Borrowed("Hitachi Travelstar 5K320 320 GB, 5400 rpm, two platters of 2.5 inches"),
    sectors: 625_142_448,
    physical_bytes: 512,
    rpm: 5400,
    heads: 4,
    actuators: 1,
    zones: 24,
    outer_rate: 72 * MB,
    inner_rate: 36 * MB,
    track_to_track_ns: MS,
    average_seek_ns: 12 * MS,
    full_stroke_ns: Some(20 * MS),
    write_settle_ns: MS,
    head_switch_ns: 900_000,
    track_skew_ns: 950_000,
    cylinder_skew_ns: 1_050_000,
    overhead_ns: 100_000,
    bus_rate: 275 * MB,
    cache_bytes: 8 * MIB,
    destage_at_bytes: 2 * MIB,
    destage_run_bytes: 4 * MIB,
    destage_idle_ns: 50 * MS,
    read_ahead_bytes: MIB,
    read_segments: 8,
    band_bytes: 0,
    media_cache_bytes: 0,
    clean_idle_ns: 0,
    sources: sources![
        cite("actuators", Source::Derived, "one, as nearly all drives"),
        cite(
            "sectors",
            Source::Derived,
            "320 GB by the usual formula of capacities"
        ),
        guess(
            "physical_bytes",
            "the family is older than sectors of 4096 bytes"
        ),
        cite("rpm", Source::Manual, "5400"),
        guess("heads", "two platters"),
        guess("outer_rate", "drives of that density"),
        guess("inner_rate", "half of the outer rate"),
        cite(
            "track_to_track_ns",
            Source::Manual,
            "1.0 ms read, 1.1 ms write, typical"
        ),
        cite(
            "average_seek_ns",
            Source::Manual,
            "12 ms read, 13 ms write, typical"
        ),
        cite(
            "full_stroke_ns",
            Source::Manual,
            "20 ms read, 21 ms write, typical"
        ),
        cite(
            "write_settle_ns",
            Source::Manual,
            "average and full stroke: 1 ms more for writes"
        ),
        guess("bus_rate", "SATA 3 Gb/s without its coding and framing"),
        guess("cache_bytes", "8 MB"),
        guess("read_ahead_bytes", "an eighth of the cache"),
    ],
};

const ST5000AS0011: Drive = Drive {
    name: Cow::Borrowed("st5000as0011"),
    title: Cow::Borrowed("Seagate Desktop HDD 5 TB, 5900 rpm, shingled, managed by the drive"),
    sectors: 9_767_541_168,
    physical_bytes: 4096,
    rpm: 5900,
    heads: 8,
    actuators: 1,
    zones: 24,
    outer_rate: 190 * MB,
    inner_rate: 90 * MB,
    track_to_track_ns: MS,
    average_seek_ns: 12 * MS,
    full_stroke_ns: None,
    write_settle_ns: MS,
    head_switch_ns: 900_000,
    track_skew_ns: 950_000,
    cylinder_skew_ns: 1_050_000,
    overhead_ns: 100_000,
    bus_rate: 550 * MB,
    cache_bytes: 128 * MIB,
    destage_at_bytes: 42 * MIB,
    destage_run_bytes: 64 * MIB,
    destage_idle_ns: 50 * MS,
    read_ahead_bytes: 16 * MIB,
    read_segments: 8,
    band_bytes: 32 * MIB,
    media_cache_bytes: 20_480 * MIB,
    clean_idle_ns: 1000 * MS,
    sources: sources![
        cite("actuators", Source::Derived, "one, as nearly all drives"),
        cite(
            "sectors",
            Source::Derived,
            "5 TB by the usual formula of capacities"
        ),
        guess("physical_bytes", "as all drives of that size"),
        cite("rpm", Source::Manual, "5900"),
        guess("heads", "four platters"),
        cite("outer_rate", Source::Sibling, "Archive HDD: up to 190 MB/s"),
        cite(
            "inner_rate",
            Source::Derived,
            "as much slower as the Constellation ES.3's: 0.47"
        ),
        guess("track_to_track_ns", "siblings have 0.2 to 1 ms"),
        guess("average_seek_ns", "slow drives of that time: 12 ms"),
        cite("full_stroke_ns", Source::Derived, "the curve's end"),
        guess("write_settle_ns", "as its siblings"),
        guess("bus_rate", "SATA 6 Gb/s without its coding and framing"),
        cite("cache_bytes", Source::Sibling, "Archive HDD: 128 MB"),
        guess("read_ahead_bytes", "an eighth of the cache"),
        cite(
            "band_bytes",
            Source::Tables,
            "Skylight (FAST '15), measured on this drive: 17 to 36 MiB, by zone; one size here"
        ),
        cite(
            "media_cache_bytes",
            Source::Tables,
            "Skylight (FAST '15), measured on this drive: 20 GiB, at the outside"
        ),
        guess(
            "clean_idle_ns",
            "Skylight (FAST '15) saw it clean as soon as it was idle"
        ),
    ],
};

const ST18000NM0092: Drive = Drive {
    name: Cow::Borrowed("st18000nm0092"),
    title: Cow::Borrowed("Seagate Exos 2X18 18 TB, 7200 rpm, two actuators, 512e"),
    sectors: 35_156_656_128,
    physical_bytes: 4096,
    rpm: 7200,
    heads: 18,
    actuators: 2,
    zones: 24,
    outer_rate: 277 * MB,
    inner_rate: 130 * MB,
    track_to_track_ns: 230_000,
    average_seek_ns: 8 * MS,
    full_stroke_ns: None,
    write_settle_ns: MS,
    head_switch_ns: 700_000,
    track_skew_ns: 750_000,
    cylinder_skew_ns: 750_000,
    overhead_ns: 100_000,
    bus_rate: 550 * MB,
    cache_bytes: 256 * MIB,
    destage_at_bytes: 85 * MIB,
    destage_run_bytes: 64 * MIB,
    destage_idle_ns: 50 * MS,
    read_ahead_bytes: 16 * MIB,
    read_segments: 8,
    band_bytes: 0,
    media_cache_bytes: 0,
    clean_idle_ns: 0,
    sources: sources![
        cite(
            "actuators",
            Source::Manual,
            "two, each with half of the sectors"
        ),
        cite(
            "sectors",
            Source::Sibling,
            "Exos X18: 18,000,207,937,536 bytes"
        ),
        cite("physical_bytes", Source::Manual, "512e"),
        cite("rpm", Source::Manual, "7200"),
        guess("heads", "nine platters"),
        cite(
            "outer_rate",
            Source::Derived,
            "of each actuator: half of the data sheet's 554 MB/s"
        ),
        cite(
            "inner_rate",
            Source::Derived,
            "as much slower as the Constellation ES.3's: 0.47"
        ),
        cite("track_to_track_ns", Source::Sibling, SEEK_SIBLING),
        guess("average_seek_ns", "as the Exos X20"),
        cite("full_stroke_ns", Source::Derived, "the curve's end"),
        guess("write_settle_ns", "as its elders"),
        guess("bus_rate", "SATA 6 Gb/s without its coding and framing"),
        cite("cache_bytes", Source::Manual, "256 MB"),
        guess(
            "read_ahead_bytes",
            "an eighth of each actuator's half of the cache"
        ),
    ],
};

/// All drives with a name. The first is the one of the published tables, as its maker describes
/// it; the second has the rates that were seen there.
pub const DRIVES: &[Drive] = &[
    ST1000DM003,
    ST1000DM003_TABLES,
    ST4000NM0023,
    ST20000NM007D,
    ST3600057SS,
    HTS543232,
    ST5000AS0011,
    ST18000NM0092,
];
