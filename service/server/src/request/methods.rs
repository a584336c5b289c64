//! Every method of `lumpscope.v1`: its short name in metrics and reports, and the right it needs.

use std::ffi::CStr;

use crate::door::Right;

/// A row of the table of methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Full path of the call.
    pub path: &'static str,
    /// Short name.
    pub name: &'static str,
    /// The name as a C string, for static probes.
    pub c_name: &'static CStr,
    /// Right that a caller needs.
    pub right: Right,
}

/// Most bytes of a message that carries names, ids and settings.
const FEW: usize = 16 << 10;
/// Most bytes of a message with many ids: 16,384 in the longest form.
const MANY: usize = 1 << 20;

impl Method {
    /// Most bytes of the only message of a call; `None`: it is a stream of any length, bounded
    /// where it is read.
    #[must_use]
    pub fn max_message(&self) -> Option<usize> {
        match self.name {
            "put" | "put_many" => None,
            "put_small" => Some(MAX_SMALL + FEW),
            "get_many" | "delete_many" => Some(MANY),
            _ => Some(FEW),
        }
    }
}

/// A name of the table with its end; compared with the names themselves by a test.
const fn c_name(ended: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(ended.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a method's name has no zero inside"),
    }
}

macro_rules! methods {
    ($($service:literal { $($method:literal $name:literal $right:ident,)* })*) => {
        /// The table.
        pub const METHODS: &[Method] = &[$($(Method {
            path: concat!("/lumpscope.v1.", $service, "/", $method),
            name: $name,
            c_name: c_name(concat!($name, "\0")),
            right: Right::$right,
        },)*)*];
    };
}

methods! {
    "LumpStore" {
        "Put" "put" Write,
        "PutSmall" "put_small" Write,
        "PutMany" "put_many" Write,
        "Get" "get" Read,
        "GetSmall" "get_small" Read,
        "GetMany" "get_many" Read,
        "Head" "head" Read,
        "Delete" "delete" Write,
        "DeleteMany" "delete_many" Write,
        "DeleteRange" "delete_range" Write,
        "List" "list" Read,
        "Usage" "usage" Read,
        "ListStores" "list_stores" Read,
    }
    "Admin" {
        "Sync" "sync" Write,
        "CollectJournal" "collect_journal" Admin,
        "StartScrub" "start_scrub" Admin,
        "StopScrub" "stop_scrub" Admin,
        "GetScrub" "get_scrub" Observe,
        "DescribeStore" "describe_store" Observe,
        "AddStore" "add_store" Admin,
        "RemoveStore" "remove_store" Admin,
        "Drain" "drain" Admin,
        "Resume" "resume" Admin,
        "DescribeService" "describe_service" Observe,
        "Reload" "reload" Admin,
    }
    "Observe" {
        "Report" "report" Observe,
        "Explain" "explain" Observe,
        "ListSlowest" "list_slowest" Observe,
        "Trace" "trace" Observe,
        "Record" "record" Observe,
        "DescribeObserver" "describe_observer" Observe,
        "SetEvents" "set_events" Admin,
    }
}

/// Most bytes of a lump in one message.
pub const MAX_SMALL: usize = 1 << 20;

/// Name for methods that do not exist.
pub const UNKNOWN: &str = "unknown";

/// The method behind a path; `None`: not one of ours.
#[must_use]
pub fn find(path: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.path == path)
}

/// Name for methods that do not exist, as a C string.
const NO_METHOD: &CStr = c"unknown";

/// Short names of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// For metrics and reports.
    pub text: &'static str,
    /// The name as a C string, for static probes.
    pub c: &'static CStr,
    /// As gRPC has it, `package.Service/Method`; empty: it does not exist.
    pub full: &'static str,
}

impl Name {
    /// A method that does not exist.
    pub const UNKNOWN: Self = Self {
        text: UNKNOWN,
        c: NO_METHOD,
        full: "",
    };

    /// True: it asks the service about itself, or tells it what to do.
    #[must_use]
    pub fn is_control(self) -> bool {
        let of = |service: &str| {
            self.full
                .strip_prefix("lumpscope.v1.")?
                .strip_prefix(service)
        };
        of("Observe/")
            .or(of("Admin/"))
            .is_some_and(|method| method != "Sync")
    }
}

/// Short names of what is behind a path.
#[must_use]
pub fn name_of(path: &str) -> Name {
    find(path).map_or(Name::UNKNOWN, |method| Name {
        text: method.name,
        c: method.c_name,
        full: method.path.trim_start_matches('/'),
    })
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::{METHODS, NO_METHOD, Right, UNKNOWN, name_of};

    #[test]
    fn names_are_the_same_for_everybody() {
        for method in METHODS {
            assert_eq!(method.c_name.to_str().unwrap(), method.name);
            let name = name_of(method.path);
            assert_eq!(format!("/{}", name.full), method.path);
            let data = matches!(method.right, Right::Read | Right::Write);
            assert_eq!(name.is_control(), !data, "{}", name.full);
        }
        assert_eq!(NO_METHOD.to_str().unwrap(), UNKNOWN);
    }

    #[test]
    fn the_table_is_that_of_the_protos() {
        let set = prost_types::FileDescriptorSet::decode(lumpscope_proto::FILE_DESCRIPTOR_SET);
        let mut declared = Vec::new();
        for file in set.unwrap().file {
            for service in &file.service {
                let path = |method: &prost_types::MethodDescriptorProto| {
                    format!("/{}.{}/{}", file.package(), service.name(), method.name())
                };
                declared.extend(service.method.iter().map(path));
            }
        }
        let mut listed: Vec<_> = METHODS
            .iter()
            .map(|method| method.path.to_owned())
            .collect();
        declared.sort();
        listed.sort();
        assert_eq!(listed, declared);
    }
}
