//! Every method of `lumpscope.v1`: its short name in metrics and reports, and the right it needs.

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// Read lumps and lists.
    Read,
    /// Change lumps.
    Write,
    /// Run the service.
    Admin,
    /// Look at numbers, reports and findings.
    Observe,
}

impl Right {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Admin, Self::Observe];

    /// The word in the file of tokens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
            Self::Observe => "observe",
        }
    }
}

/// One method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Full path of the call.
    pub path: &'static str,
    /// Short name.
    pub name: &'static str,
    /// What a caller must be allowed to do.
    pub right: Right,
}

macro_rules! methods {
    ($($service:literal { $($method:literal $name:literal $right:ident,)* })*) => {
        /// The table.
        pub const METHODS: &[Method] = &[$($(Method {
            path: concat!("/lumpscope.v1.", $service, "/", $method),
            name: $name,
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

/// What stands for the name of a method that does not exist.
pub const UNKNOWN: &str = "unknown";

/// The method behind a path; `None`: not one of ours.
#[must_use]
pub fn find(path: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.path == path)
}

/// Short name of what is behind a path, for metrics and reports.
#[must_use]
pub fn short_name(path: &str) -> &'static str {
    find(path).map_or(UNKNOWN, |method| method.name)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::METHODS;

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
