//! `lumpscope admin observer`.

use anyhow::Result;
use clap::Args;
use lumpscope_client::{Client, v1};
use lumpscope_server::json::to_json;
use lumpscope_units::{Span, clock::date, human};
use serde_json::Value;

use crate::output::{escaped, table};

/// `lumpscope admin observer`.
#[derive(Args)]
pub(crate) struct ObserverArgs {
    /// From now on hand out one in N completed block requests; 1: each; 0: none at random. All are
    /// counted in any case
    #[arg(long, value_name = "N")]
    one_in: Option<u32>,
    /// From now on also hand out each block request that took at least this long from queued to
    /// completed, e.g. 5ms; 0: no such rule
    #[arg(long, value_name = "TIME")]
    slower_than: Option<Span>,
}

/// Sets what was given, and says what the observer is made of, and what it costs.
pub(super) async fn observer(client: &Client, args: ObserverArgs) -> Result<(Value, String)> {
    let request = v1::DescribeObserverRequest {};
    let mut reply = client.describe_observer(request).await?;
    if args.one_in.is_some() || args.slower_than.is_some() {
        let now = reply.events.unwrap_or_default();
        let slower_than_ns = args.slower_than.map(Span::nanoseconds);
        let events = v1::EventPolicy {
            one_in: args.one_in.unwrap_or(now.one_in),
            slower_than_ns: slower_than_ns.unwrap_or(now.slower_than_ns),
        };
        let events = Some(events);
        let set = client.set_events(v1::SetEventsRequest { events }).await?;
        (reply.events, reply.request_id) = (set.events, set.request_id);
    }
    Ok((to_json(&reply), observer_text(&reply)))
}

fn policy_text(policy: &v1::EventPolicy) -> String {
    let slow = match policy.slower_than_ns {
        0 => String::new(),
        ns => format!(", and all that take {} or longer", human::duration_ns(ns)),
    };
    match policy.one_in {
        0 if slow.is_empty() => "no block request is handed out; they are counted only".to_owned(),
        0 => format!("no block requests at random{slow}"),
        1 => "each block request is handed out".to_owned(),
        n => format!("one of {n} block requests{slow}"),
    }
}

fn observer_text(reply: &v1::DescribeObserverResponse) -> String {
    let mut programs = table(&["program", "hook", "attached", "runs", "a run", "skipped"]);
    for p in &reply.programs {
        let each = p.run_ns.checked_div(p.runs);
        programs.add_row([
            p.name.clone(),
            p.hook.clone(),
            yes_or(p.attached, &p.not_attached_because),
            human::count(p.runs),
            each.map_or_else(|| "-".to_owned(), human::duration_ns),
            human::count(p.recursion_misses),
        ]);
    }
    for column in 3..6 {
        programs.right(column);
    }
    let mut stores = table(&["store", "disk", "observed", "attached by", "guard"]);
    for s in &reply.stores {
        stores.add_row([
            s.store.clone(),
            s.device.clone(),
            yes_or(s.observed, &s.not_observed_because),
            s.mode.clone(),
            guard_text(s),
        ]);
    }
    let programs = match reply.programs.is_empty() {
        true => "no program loaded".to_owned(),
        false => programs.to_string(),
    };
    let events = policy_text(&reply.events.unwrap_or_default());
    let opens: String = reply.stores.iter().flat_map(opens_text).collect();
    format!("{stores}\n{opens}\n{programs}\n\nevents: {events}")
}

/// One line an open of a store's device by somebody else.
fn opens_text(s: &v1::ObservedStore) -> impl Iterator<Item = String> {
    s.guard_recent.iter().map(|o| {
        let done = if o.denied { "denied" } else { "allowed" };
        let at = i64::try_from(o.unix_ms).unwrap_or(i64::MAX);
        format!(
            "  {}: {} (pid {}, uid {}) opened {} for writing {}: {done}\n",
            escaped(&s.store),
            escaped(&o.process),
            o.pid,
            o.uid,
            escaped(&o.device),
            date(at.saturating_mul(1_000_000)),
        )
    })
}

fn yes_or(yes: bool, why_not: &str) -> String {
    match yes {
        true => "yes".to_owned(),
        false => format!("no: {why_not}"),
    }
}

fn guard_text(s: &v1::ObservedStore) -> String {
    if s.guard_policy == "off" {
        return s.guard_policy.clone();
    }
    let works = match s.guard_effective {
        true => "effective".to_owned(),
        false => format!("not effective: {}", s.guard_not_effective_because),
    };
    format!(
        "{}, {works}; {} denied, {} allowed",
        s.guard_policy, s.guard_denied, s.guard_allowed
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_a_sentence() {
        let text = |one_in, slower_than_ns| {
            policy_text(&v1::EventPolicy {
                one_in,
                slower_than_ns,
            })
        };
        assert_eq!(text(1, 0), "each block request is handed out");
        let expected = "one of 100 block requests, and all that take 5.00 ms or longer";
        assert_eq!(text(100, 5_000_000), expected);
        assert!(text(0, 0).contains("counted only"));
        assert!(text(0, 1).starts_with("no block requests at random, and all"));
    }

    #[test]
    fn what_does_not_work_says_why() {
        let reply = v1::DescribeObserverResponse {
            programs: vec![v1::ProbeProgram {
                name: "start_btf".into(),
                hook: "block_io_start".into(),
                not_attached_because: "the kernel has no such hook".into(),
                runs: 4,
                run_ns: 1000,
                ..Default::default()
            }],
            stores: vec![v1::ObservedStore {
                store: "fast".into(),
                guard_policy: "deny".into(),
                guard_not_effective_because: "no BPF LSM".into(),
                guard_recent: vec![v1::GuardedOpen {
                    unix_ms: 1_795_271_750_123,
                    device: "sdb1".into(),
                    process: "dd".into(),
                    pid: 7,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let text = observer_text(&reply);
        let text: Vec<&str> = text.split_whitespace().collect();
        let text = text.join(" ");
        for words in [
            "no: the kernel has no such hook",
            "250 ns",
            "deny, not effective: no BPF LSM; 0 denied, 0 allowed",
            "fast: dd (pid 7, uid 0) opened sdb1 for writing at 2026-11-21 14:35:50.123000 UTC: allowed",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
        assert_eq!(to_json(&reply)["stores"][0]["guard"]["policy"], "deny");
    }
}
