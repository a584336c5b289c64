//! JSON forms that serde does not derive. `--json` and the page depend on them: see `testdata/shown.jsonl`.

use serde::{Serialize, Serializer};

use crate::v1;

pub(crate) fn state<S: Serializer>(state: &i32, to: S) -> Result<S::Ok, S::Error> {
    let state = v1::StoreState::try_from(*state).unwrap_or_default();
    to.serialize_str(state.word())
}

pub(crate) fn durability<S: Serializer>(durability: &i32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match v1::Durability::try_from(*durability) {
        Ok(v1::Durability::Synced) => "synced",
        Ok(v1::Durability::Journaled) => "journaled",
        Ok(v1::Durability::Unspecified) | Err(_) => "unspecified",
    })
}

/// Everything but an embedded lump is in the data region.
pub(crate) fn placement<S: Serializer>(placement: &i32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match v1::Placement::try_from(*placement) {
        Ok(v1::Placement::Embedded) => "embedded",
        _ => "data",
    })
}

pub(crate) fn crc32c<S: Serializer>(crc32c: &u32, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{crc32c:08x}"))
}

pub(crate) fn known_crc32c<S: Serializer>(crc: &Option<u32>, to: S) -> Result<S::Ok, S::Error> {
    match crc {
        Some(crc) => crc32c(crc, to),
        None => to.serialize_none(),
    }
}

pub(crate) fn hex<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&crate::hex(bytes))
}

/// Nanoseconds by stage.
pub(crate) fn stages<S: Serializer>(stages: &[v1::StageTime], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(stages.iter().map(|s| (&s.stage, s.total_ns)))
}

/// Nanoseconds by owner class.
pub(crate) fn lost<S: Serializer>(lost: &[v1::LostTime], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(lost.iter().map(|l| (&l.owner, l.ns)))
}

impl Serialize for v1::ObservedStore {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Guard<'a> {
            policy: &'a str,
            effective: bool,
            not_effective_because: &'a str,
            denied: u64,
            allowed: u64,
            recent: &'a [v1::GuardedOpen],
        }
        #[derive(Serialize)]
        struct Store<'a> {
            store: &'a str,
            device: &'a str,
            observed: bool,
            not_observed_because: &'a str,
            mode: &'a str,
            guard: Guard<'a>,
        }
        let store = Store {
            store: &self.store,
            device: &self.device,
            observed: self.observed,
            not_observed_because: &self.not_observed_because,
            mode: &self.mode,
            guard: Guard {
                policy: &self.guard_policy,
                effective: self.guard_effective,
                not_effective_because: &self.guard_not_effective_because,
                denied: self.guard_denied,
                allowed: self.guard_allowed,
                recent: &self.guard_recent,
            },
        };
        store.serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn shown(message: &impl Serialize) -> Value {
        serde_json::to_value(message).unwrap()
    }

    fn slow_request() -> v1::SlowRequest {
        let stage = |stage: &str, total_ns| v1::StageTime {
            stage: stage.into(),
            total_ns,
        };
        v1::SlowRequest {
            request_id: 7,
            store: "fast".into(),
            device: "loop3".into(),
            method: "put".into(),
            bytes: 1 << 20,
            ok: true,
            begin_unix_ns: 1_795_271_750_123_456_789,
            total_ns: 9_100_000,
            trace_id: "00ff".into(),
            sentence: "put of 1 MiB took 9.1 ms".into(),
            stages: vec![stage("recv", 5), stage("device", 8_000_000)],
            steps: vec![v1::Step {
                from_ns: -3,
                took_ns: 8_000_000,
                stage: "device".into(),
                text: "1 write at the device".into(),
            }],
            block_requests: 3,
            blocks: vec![
                v1::BlockIo {
                    operation: "write".into(),
                    purpose: "data".into(),
                    sector: 4096,
                    sectors: 2048,
                    own_bytes: 1 << 20,
                    seek_bytes: Some(-(41 << 30)),
                    previous_owner: "fs-journal".into(),
                    queue_ns: 3_000,
                    device_ns: 7_900_000,
                    queued_at_ns: Some(118_000),
                    issued_at_ns: Some(121_000),
                    done_at_ns: Some(8_021_000),
                    ..Default::default()
                },
                v1::BlockIo {
                    operation: "flush".into(),
                    purpose: "flush".into(),
                    shared: true,
                    failed: true,
                    failure: "medium".into(),
                    ..Default::default()
                },
            ],
            lost: vec![v1::LostTime {
                owner: "fs-journal".into(),
                ns: 5_900_000,
            }],
            incomplete: "2 events were lost".into(),
            lost_in_all_ns: Some(5_900_000),
            waited_for_request_id: Some(6),
        }
    }

    fn block_line() -> v1::BlockLine {
        v1::BlockLine {
            done_unix_ns: 1_795_271_750_123_456_789,
            device: "loop3".into(),
            stores: vec!["fast".into()],
            operation: "write".into(),
            owner: "request".into(),
            request_ids: vec![17, 18],
            process: "lumpscope".into(),
            sector: 975_512,
            sectors: 2048,
            seek_bytes: Some(312 << 20),
            previous_owner: "request 5".into(),
            queue_ns: Some(2_500),
            device_ns: None,
            failed: false,
            failure: String::new(),
            pid: 4711,
            cgroup_id: 77,
            cgroup: "/docker/0a".into(),
            container: "0a".into(),
            flags: vec!["fua".into()],
            hardware_queue: Some(3),
            uncertain: false,
        }
    }

    fn observer() -> v1::DescribeObserverResponse {
        v1::DescribeObserverResponse {
            programs: vec![v1::ProbeProgram {
                name: "start_btf".into(),
                hook: "block_io_start".into(),
                attached: false,
                not_attached_because: "the kernel has no such hook".into(),
                needed: true,
                runs: 4,
                run_ns: 1000,
                recursion_misses: 1,
            }],
            events: Some(v1::EventPolicy {
                one_in: 100,
                slower_than_ns: 5_000_000,
            }),
            stores: vec![v1::ObservedStore {
                store: "fast".into(),
                device: "sdb".into(),
                observed: true,
                not_observed_because: String::new(),
                mode: "tp_btf".into(),
                guard_policy: "deny".into(),
                guard_effective: true,
                guard_not_effective_because: String::new(),
                guard_denied: 2,
                guard_allowed: 1,
                guard_recent: vec![v1::GuardedOpen {
                    unix_ms: 1_795_271_750_123,
                    device: "sdb1".into(),
                    process: "dd".into(),
                    pid: 7,
                    uid: 1000,
                    denied: true,
                }],
            }],
            request_id: 9,
        }
    }

    fn scrub() -> v1::GetScrubResponse {
        v1::GetScrubResponse {
            request_id: 3,
            running: true,
            bytes_per_second: 1000,
            position_bytes: 4096,
            end_bytes: 8192,
            passes: 1,
            last_pass: Some(v1::ScrubPass {
                lumps: 10,
                bytes: 8192,
                damaged: 1,
                ended_unix_seconds: 1_795_271_750,
            }),
            this_pass: None,
            verified_lumps: 9,
            unverified_lumps: 2,
            corrupt_lumps: 1,
            read_errors: 4,
            findings: 1,
            listed: vec![v1::ScrubFinding {
                id: vec![0x0a, 0xff].into(),
                message: "a damaged lump".into(),
            }],
        }
    }

    fn service() -> v1::DescribeServiceResponse {
        v1::DescribeServiceResponse {
            request_id: 2,
            version: "0.1.0".into(),
            pid: 99,
            uptime_seconds: 60,
            settings: [("b".into(), "2".into()), ("a".into(), "1".into())].into(),
            privileges: Some(v1::Privileges {
                uid: 0,
                gid: 1,
                capabilities: vec!["CAP_BPF".into()],
                no_new_privileges: true,
            }),
            connections: 3,
            under_way: 4,
        }
    }

    fn store() -> v1::StoreInfo {
        v1::StoreInfo {
            name: "fast".into(),
            path: "/dev/sdb".into(),
            layout: "minfs".into(),
            block_size: 4096,
            max_lump_bytes: 1 << 30,
            uuid: "u".into(),
            device: "sdb".into(),
            observed: true,
            not_observed_because: String::new(),
            failed: "a write failed".into(),
            state: v1::StoreState::ReadOnly.into(),
            state_reason: "a write failed".into(),
        }
    }

    #[test]
    fn keys_and_forms_stay() {
        let put = v1::PutResponse {
            request_id: 1,
            created: true,
            durability: v1::Durability::Journaled.into(),
            crc32c: 0xab,
            placement: v1::Placement::Embedded.into(),
        };
        let part = v1::GetHeader {
            request_id: 1,
            lump_length: 10,
            ..Default::default()
        };
        let lump = v1::HeadResponse {
            request_id: 1,
            length: 10,
            placement: v1::Placement::Embedded.into(),
            crc32c: None,
        };
        let stat = v1::DescribeStoreResponse {
            request_id: 1,
            info: Some(store()),
            io_backend: "uring".into(),
            lumps: 2,
            numbers: [("queue_length".into(), 1.0)].into(),
            disk: "write back, FUA".into(),
            durability: "flushes".into(),
        };
        let told = [
            shown(&slow_request()),
            shown(&block_line()),
            shown(&observer()),
            shown(&scrub()),
            shown(&service()),
            shown(&store()),
            shown(&stat),
            shown(&put),
            shown(&part),
            shown(&lump),
        ];
        let golden: Vec<&str> = include_str!("../testdata/shown.jsonl").lines().collect();
        assert_eq!(told.map(|value| value.to_string()).as_slice(), golden);
    }
}
