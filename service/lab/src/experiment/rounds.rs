//! The order of cases in a round. What the machine does meanwhile hits all cases alike, so a figure
//! compares runs of one round.

/// Every second round goes in reverse. Rounds count from 1.
pub(crate) fn alternate<T>(mut cases: Vec<T>, round: usize) -> Vec<T> {
    if round.is_multiple_of(2) {
        cases.reverse();
    }
    cases
}

/// Each round begins with another case, and goes once around.
pub(crate) fn rotate<T>(cases: &[T], round: usize) -> impl Iterator<Item = &T> {
    let count = cases.len();
    cases.iter().cycle().skip(round % count.max(1)).take(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_each_case_once() {
        for round in 1..=8 {
            let order: Vec<_> = rotate(&['a', 'b', 'c', 'd'], round).collect();
            assert!(
                ['a', 'b', 'c', 'd']
                    .iter()
                    .all(|case| order.contains(&case))
            );
            assert_eq!(*order[0], ['a', 'b', 'c', 'd'][round % 4]);
        }
        assert_eq!(alternate(vec![1, 2], 1), [1, 2]);
        assert_eq!(alternate(vec![1, 2], 2), [2, 1]);
        assert_eq!(rotate::<u8>(&[], 1).count(), 0);
    }
}
