//! The flavours that are handed pointers: where the members are, and which argument is which.

use crate::api::Flavour;
use crate::btf::{Btf, BtfError};

use super::{HAS_START, Hook, LoadPlan, PlanError};

const GETRQ: &str = "block_getrq";
const IO_START: &str = "block_io_start";
const BIO_QUEUE: &str = "block_bio_queue";
const BIO_COMPLETE: &str = "block_bio_complete";
const REMAP: &str = "block_bio_remap";
const ISSUE: &str = "block_rq_issue";
const COMPLETE: &str = "block_rq_complete";

type Globals = Vec<(&'static str, u32)>;

/// A program's name with BTF tracepoints, and with raw ones.
struct Name(&'static str, &'static str);

impl Name {
    fn of(&self, flavour: Flavour) -> &'static str {
        if flavour == Flavour::TpBtf {
            self.0
        } else {
            self.1
        }
    }
}

pub(super) fn plan(
    flavour: Flavour,
    btf: &Btf<'_>,
    hidden: &dyn Fn(&str) -> bool,
) -> Result<LoadPlan, PlanError> {
    let arguments = |tracepoint: &'static str| match hidden(tracepoint) {
        true => Err(PlanError::NoTracepoint(tracepoint)),
        false => Ok(btf.tracepoint_arguments(tracepoint)?),
    };
    let mut globals = of_requests(btf)?;
    if arguments(COMPLETE)? != 3 {
        return Err(unknown(COMPLETE, arguments(COMPLETE)?));
    }
    let done = Name("done_btf", "done_raw");
    let issue = match arguments(ISSUE)? {
        1 => Name("issue_btf", "issue_raw"),
        2 => Name("issue_q_btf", "issue_q_raw"),
        found => return Err(unknown(ISSUE, found)),
    };
    let bios = of_bios(btf);
    let (start, tracepoint, why_not) = start(&arguments, bios.as_ref().err());
    let by_bio = tracepoint == GETRQ && why_not.is_empty();
    globals.push(("BY_BIO", u32::from(by_bio)));
    globals.extend(of_accounts(btf).unwrap_or_default());
    globals.push((HAS_START, u32::from(why_not.is_empty())));
    globals.extend(bios.clone().unwrap_or_default());
    let more = |hooks: Result<Vec<Hook>, PlanError>| match &bios {
        Ok(_) => hooks.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let bio_hooks = more(bio_hooks(flavour, &arguments));
    let path_hooks = more(path_hooks(flavour, &arguments));
    Ok(LoadPlan {
        flavour,
        hooks: vec![
            Hook::needed(done.of(flavour), COMPLETE),
            Hook::needed(issue.of(flavour), ISSUE),
            Hook::start(start.of(flavour), tracepoint).missing(why_not),
        ],
        bio_hooks,
        path_hooks,
        globals,
    })
}

fn unknown(tracepoint: &'static str, found: usize) -> PlanError {
    PlanError::Arguments { tracepoint, found }
}

type Arguments<'a> = &'a dyn Fn(&'static str) -> Result<usize, PlanError>;

/// How requests being made are seen: the program, its tracepoint, and why not.
///
/// Before 6.5 only the bio is shown that a request will be made of. It is remembered by the bio's
/// address and taken over when the request is sent.
fn start(arguments: Arguments<'_>, no_bios: Option<&BtfError>) -> (Name, &'static str, String) {
    match arguments(IO_START) {
        Ok(1) => return (Name("start_btf", "start_raw"), IO_START, String::new()),
        Ok(found) => {
            let why = unknown(IO_START, found).to_string();
            return (Name("start_btf", "start_raw"), IO_START, why);
        }
        Err(_) => {}
    }
    let first = Name("start_bio_btf", "start_bio_raw");
    if let Some(error) = no_bios {
        return (first, GETRQ, error.to_string());
    }
    match arguments(GETRQ) {
        Ok(1) => (first, GETRQ, String::new()),
        Ok(2 | 3) => {
            let second = Name("start_bio_q_btf", "start_bio_q_raw");
            (second, GETRQ, String::new())
        }
        Ok(found) => (first, GETRQ, unknown(GETRQ, found).to_string()),
        Err(error) => (first, GETRQ, error.to_string()),
    }
}

fn bio_hooks(flavour: Flavour, arguments: Arguments<'_>) -> Result<Vec<Hook>, PlanError> {
    let queue = match arguments(BIO_QUEUE)? {
        1 => Name("bio_queue_btf", "bio_queue_raw"),
        2 => Name("bio_queue_q_btf", "bio_queue_q_raw"),
        found => return Err(unknown(BIO_QUEUE, found)),
    };
    if arguments(BIO_COMPLETE)? != 2 {
        return Err(unknown(BIO_COMPLETE, arguments(BIO_COMPLETE)?));
    }
    let done = Name("bio_done_btf", "bio_done_raw");
    Ok(vec![
        Hook::needed(done.of(flavour), BIO_COMPLETE),
        Hook::needed(queue.of(flavour), BIO_QUEUE),
    ])
}

fn of_requests(btf: &Btf<'_>) -> Result<Globals, PlanError> {
    let major = btf.member_offset("gendisk", "major")?;
    if btf.member_offset("gendisk", "first_minor")? != major + 4 {
        return Err(PlanError::Gendisk);
    }
    // Until 5.16 a request names its disk.
    let disk = match btf.member_offset("request", "rq_disk") {
        Ok(offset) => ("RQ_DISK", offset),
        Err(_) => ("QUEUE_DISK", btf.member_offset("request_queue", "disk")?),
    };
    let of_queue = btf
        .member_offset("request", "mq_hctx")
        .and_then(|context| Ok((context, btf.member_offset("blk_mq_hw_ctx", "queue_num")?)));
    let hardware_queue = of_queue.unwrap_or((0, 0));
    let errno = btf.tracepoint_argument(COMPLETE, 1)? != "blk_status_t";
    Ok(vec![
        ("RQ_QUEUE", btf.member_offset("request", "q")?),
        ("RQ_FLAGS", btf.member_offset("request", "cmd_flags")?),
        ("RQ_LEN", btf.member_offset("request", "__data_len")?),
        ("RQ_SECTOR", btf.member_offset("request", "__sector")?),
        ("RQ_BIO", btf.member_offset("request", "bio")?),
        // Without it a flush whose completion was missed looks as if it had been sent twice.
        (
            "RQ_BORN",
            btf.member_offset("request", "start_time_ns").unwrap_or(0),
        ),
        disk,
        ("RQ_HCTX", hardware_queue.0),
        ("HCTX_NUMBER", hardware_queue.1),
        ("DISK_MAJOR", major),
        ("DONE_ERRNO", u32::from(errno)),
    ])
}

/// From a bio to the cgroup that it is charged to. Not all kernels keep account of that.
fn of_accounts(btf: &Btf<'_>) -> Result<Globals, BtfError> {
    let css = btf.member_offset("blkcg", "css")?;
    let cgroup = css + btf.member_offset("cgroup_subsys_state", "cgroup")?;
    Ok(vec![
        ("BIO_GROUP", btf.member_offset("bio", "bi_blkg")?),
        ("GROUP_BLKCG", btf.member_offset("blkcg_gq", "blkcg")?),
        ("BLKCG_CGROUP", cgroup),
        ("CGROUP_ROOT", btf.member_offset("cgroup", "root")?),
        (
            "ROOT_HIERARCHY",
            btf.member_offset("cgroup_root", "hierarchy_id")?,
        ),
        ("CGROUP_NODE", btf.member_offset("cgroup", "kn")?),
        ("NODE_ID", btf.member_offset("kernfs_node", "id")?),
    ])
}

fn of_bios(btf: &Btf<'_>) -> Result<Globals, BtfError> {
    let iter = btf.member_offset("bio", "bi_iter")?;
    let mut globals = vec![
        ("BIO_NEXT", btf.member_offset("bio", "bi_next")?),
        ("BIO_FLAGS", btf.member_offset("bio", "bi_opf")?),
        ("BIO_STATUS", btf.member_offset("bio", "bi_status")?),
        (
            "BIO_SECTOR",
            iter + btf.member_offset("bvec_iter", "bi_sector")?,
        ),
        (
            "BIO_BYTES",
            iter + btf.member_offset("bvec_iter", "bi_size")?,
        ),
    ];
    match btf.member_offset("bio", "bi_bdev") {
        Ok(offset) => {
            globals.push(("BIO_DISK", offset));
            globals.push(("BDEV_DISK", btf.member_offset("block_device", "bd_disk")?));
        }
        // Before 5.12.
        Err(_) => globals.push(("BIO_DISK", btf.member_offset("bio", "bi_disk")?)),
    }
    Ok(globals)
}

fn path_hooks(flavour: Flavour, arguments: Arguments<'_>) -> Result<Vec<Hook>, PlanError> {
    let path = match arguments(REMAP)? {
        3 => Name("path_btf", "path_raw"),
        4 => Name("path_q_btf", "path_q_raw"),
        found => return Err(unknown(REMAP, found)),
    };
    Ok(vec![Hook::needed(path.of(flavour), REMAP)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type information with what the probes ask for, as a kernel's has it.
    #[derive(Default)]
    struct Kernel {
        types: Vec<u32>,
        strings: Vec<u8>,
        ids: u32,
    }

    impl Kernel {
        fn name(&mut self, name: &str) -> u32 {
            let at = u32::try_from(self.strings.len()).expect("small");
            self.strings.extend(name.as_bytes());
            self.strings.push(0);
            at
        }

        fn put(&mut self, words: &[u32]) -> u32 {
            self.types.extend(words);
            self.ids += 1;
            self.ids
        }

        /// Members lie 4 bytes apart, beginning at 4.
        fn structure(&mut self, name: &str, members: &[&str]) {
            let count = u32::try_from(members.len()).expect("small");
            let mut words = vec![self.name(name), 4 << 24 | count, 0];
            for (member, at) in members.iter().zip(1..) {
                words.extend([self.name(member), 1, at * 32]);
            }
            self.put(&words);
        }

        fn tracepoint(&mut self, name: &str, arguments: &[&str]) {
            let count = u32::try_from(arguments.len()).expect("small") + 1;
            let mut words = vec![0, 13 << 24 | count, 0, 0, 1];
            for argument in arguments {
                let alias = [self.name(argument), 8 << 24, 1];
                words.extend([0, self.put(&alias)]);
            }
            let prototype = self.put(&words);
            let pointer = self.put(&[0, 2 << 24, prototype]);
            let alias = [self.name(&format!("btf_trace_{name}")), 8 << 24, pointer];
            self.put(&alias);
        }

        fn bytes(&self) -> Vec<u8> {
            let len = |n: usize| u32::try_from(n).expect("small").to_ne_bytes();
            let types: Vec<u8> = self.types.iter().flat_map(|w| w.to_ne_bytes()).collect();
            let mut out = 0xeb9f_u16.to_ne_bytes().to_vec();
            out.extend([1, 0]);
            for n in [24, 0, types.len(), types.len(), self.strings.len()] {
                out.extend(len(n));
            }
            out.extend(types);
            out.extend(&self.strings);
            out
        }
    }

    fn kernel(rq_disk: bool, tracepoints: &[(&str, &[&str])]) -> Kernel {
        let mut it = Kernel::default();
        it.strings.push(0);
        let int = [it.name("int"), 1 << 24, 4, 32];
        it.put(&int);
        it.structure("gendisk", &["major", "first_minor"]);
        it.structure("bvec_iter", &["bi_sector", "bi_size"]);
        it.structure("block_device", &["bd_disk"]);
        let request = ["q", "cmd_flags", "__data_len", "__sector", "bio", "rq_disk"];
        it.structure("request", &request[..if rq_disk { 6 } else { 5 }]);
        let names = ["bi_next", "bi_opf", "bi_status", "bi_iter"];
        let disk = if rq_disk { "bi_disk" } else { "bi_bdev" };
        it.structure("bio", &[&names[..], &[disk]].concat());
        it.structure("request_queue", &["disk"]);
        for (name, arguments) in tracepoints {
            it.tracepoint(name, arguments);
        }
        it
    }

    fn plan_of(kernel: &Kernel, hidden: &str) -> Result<LoadPlan, PlanError> {
        let bytes = kernel.bytes();
        let btf = Btf::parse(&bytes).expect("valid");
        plan(Flavour::RawTp, &btf, &|name: &str| name == hidden)
    }

    fn programs(plan: &LoadPlan) -> Vec<&str> {
        let there = plan.hooks.iter().filter(|hook| hook.is_there());
        there.map(|hook| hook.program).collect()
    }

    fn global(plan: &LoadPlan, name: &str) -> Option<u32> {
        let found = plan.globals.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| *value)
    }

    const DONE_OLD: (&str, &[&str]) = (COMPLETE, &["request", "int", "int"]);
    const DONE: (&str, &[&str]) = (COMPLETE, &["request", "blk_status_t", "int"]);

    #[test]
    fn the_first_5_10_has_the_queue_before_everything() {
        let it = kernel(
            true,
            &[
                DONE_OLD,
                (ISSUE, &["queue", "request"]),
                (GETRQ, &["queue", "bio", "int"]),
                (BIO_QUEUE, &["queue", "bio"]),
                (BIO_COMPLETE, &["queue", "bio"]),
            ],
        );
        let plan = plan_of(&it, "").expect("it works");
        let expected = ["done_raw", "issue_q_raw", "start_bio_q_raw"];
        assert_eq!(programs(&plan), expected);
        assert_eq!(global(&plan, "RQ_DISK"), Some(24));
        assert_eq!(global(&plan, "RQ_BIO"), Some(20));
        assert_eq!(global(&plan, "BY_BIO"), Some(1));
        assert_eq!(global(&plan, "DONE_ERRNO"), Some(1));
        assert_eq!(global(&plan, "BDEV_DISK"), None);
        let bios = plan.bio_hooks.expect("they work");
        assert_eq!(bios[1].program, "bio_queue_q_raw");
    }

    #[test]
    fn a_new_kernel_shows_requests_and_needs_no_bios() {
        let it = kernel(
            false,
            &[DONE, (ISSUE, &["request"]), (IO_START, &["request"])],
        );
        let plan = plan_of(&it, "").expect("it works");
        assert_eq!(programs(&plan), ["done_raw", "issue_raw", "start_raw"]);
        assert_eq!(global(&plan, "BY_BIO"), Some(0));
        assert_eq!(global(&plan, "RQ_DISK"), None);
        assert_eq!(global(&plan, "DONE_ERRNO"), Some(0));
        let why = plan.bio_hooks.expect_err("no tracepoints for them");
        assert!(why.contains(BIO_QUEUE), "{why}");
    }

    #[test]
    fn only_the_start_can_be_done_without() {
        let it = kernel(false, &[DONE, (ISSUE, &["request"])]);
        let mut plan = plan_of(&it, "").expect("it works");
        assert_eq!(programs(&plan), ["done_raw", "issue_raw"]);
        assert_eq!(global(&plan, HAS_START), Some(0));
        assert!(!plan.give_up("done_raw", "refused"));
        assert!(plan_of(&it, ISSUE).is_err() && plan_of(&it, COMPLETE).is_err());
        let it = kernel(false, &[DONE, (ISSUE, &["request", "what", "else"])]);
        assert!(plan_of(&it, "").is_err());
    }

    #[test]
    fn a_start_that_the_kernel_refuses_is_given_up_once() {
        let it = kernel(
            false,
            &[DONE, (ISSUE, &["request"]), (IO_START, &["request"])],
        );
        let mut plan = plan_of(&it, "").expect("it works");
        assert_eq!(global(&plan, HAS_START), Some(1));
        assert!(plan.give_up("start_raw", "refused"));
        assert_eq!(global(&plan, HAS_START), Some(0));
        assert!(!plan.give_up("start_raw", "refused"));
    }
}
