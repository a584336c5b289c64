//! Visibility of watched requests by caller, and sizes of replies.

use std::collections::VecDeque;

use super::*;

fn line(stores: &[&str]) -> v1::BlockLine {
    v1::BlockLine {
        stores: stores.iter().map(|&name| name.to_owned()).collect(),
        request_ids: vec![7],
        ..v1::BlockLine::default()
    }
}

fn batch<T>(things: impl IntoIterator<Item = T>, heartbeat: bool) -> Batch<'static, T> {
    Batch {
        things: things.into_iter().collect::<VecDeque<T>>(),
        dropped: 3,
        doubts: "some",
        heartbeat,
    }
}

#[test]
fn who_may_use_one_store_sees_nothing_of_the_others() {
    let mine = |name: &str| name == "mine";
    assert!(visible(line(&["theirs"]), &mine).is_none());
    let own = visible(line(&["mine"]), &mine).unwrap();
    assert_eq!(&*own.stores, &["mine".to_owned()][..]);
    assert_eq!(&*own.request_ids, &[7][..]);
    let shared = visible(line(&["mine", "theirs"]), &mine).unwrap();
    assert_eq!(shared.stores, ["mine"]);
    assert!(shared.request_ids.is_empty(), "one of them may be theirs");
    let replies = trace_replies(batch([line(&["theirs"]), line(&["mine"])], false), &mine);
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].blocks.len(), 1);
    assert!(trace_replies(batch([line(&["theirs"])], false), &mine).is_empty());
}

#[test]
fn a_heartbeat_says_what_is_missing_and_large_batches_are_split() {
    let all = |_: &str| true;
    assert!(trace_replies(batch([], false), &all).is_empty());
    let [beat] = &trace_replies(batch([], true), &all)[..] else {
        panic!("one reply")
    };
    assert_eq!((beat.dropped, beat.incomplete.as_str()), (3, "some"));
    let many = std::iter::repeat_n(line(&["a"]), 2 * BLOCKS_A_REPLY + 1);
    let sizes: Vec<usize> = trace_replies(batch(many, true), &all)
        .iter()
        .map(|reply| reply.blocks.len())
        .collect();
    assert_eq!(sizes, [BLOCKS_A_REPLY, BLOCKS_A_REPLY, 1]);

    assert!(record_replies(batch([], false)).is_empty());
    assert_eq!(record_replies(batch([], true)).len(), 1);
    let lines = (0..5000).map(|i| format!("{{\"n\":{i},\"x\":\"{}\"}}", "y".repeat(100)));
    let replies = record_replies(batch(lines.clone(), true));
    assert!(replies.len() > 1);
    assert!(
        replies
            .iter()
            .all(|reply| reply.lines.len() <= BYTES_A_REPLY)
    );
    assert!(replies.iter().all(|reply| reply.lines.ends_with(b"\n")));
    let joined: Vec<u8> = replies
        .iter()
        .flat_map(|reply| reply.lines.to_vec())
        .collect();
    let wanted: String = lines.map(|line| line + "\n").collect();
    assert!(joined == wanted.as_bytes());
}

#[test]
fn words_that_match_nothing_are_refused() {
    let asked = v1::TraceRequest {
        owner: "journal".into(),
        ..Default::default()
    };
    let refused = check(&asked).unwrap_err().to_string();
    assert!(refused.contains("fs-journal"), "{refused}");
    let asked = v1::TraceRequest {
        operation: "write".into(),
        for_request_id: 5,
        ..Default::default()
    };
    assert!(check(&asked).is_ok());
}
