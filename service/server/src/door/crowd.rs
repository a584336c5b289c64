//! The open connections of an entrance, and which of them makes room for a newcomer.
//!
//! A connection that nobody has logged in on and that has no call under way is there by courtesy:
//! when the entrance is full, the one that has been quiet for longest makes room, of the address
//! that has the most. So whoever opens connections and says nothing displaces itself, and a health
//! check gets in.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::connection::{Connection, Peer};

/// Open connections. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Crowd {
    /// Connections that one address may have open.
    each: usize,
    inside: Arc<Mutex<Vec<Connection>>>,
}

impl Crowd {
    /// Of `max` connections a quarter is never for one address alone.
    pub(super) fn new(max: usize) -> Self {
        Self {
            each: max - max / 4,
            inside: Arc::default(),
        }
    }

    /// Lets a connection in until [`Inside`] is dropped; `None`: its address has too many, and none
    /// of them makes room.
    pub(super) fn enter(&self, connection: &Connection) -> Option<Inside> {
        let from = address(connection);
        let mut inside = self.inside();
        if from.is_some() {
            let same = |other: &&Connection| address(other) == from;
            if inside.iter().filter(same).count() >= self.each {
                displace(inside.iter().filter(same))?;
            }
        }
        inside.push(connection.clone());
        drop(inside);
        Some(Inside {
            crowd: self.clone(),
            connection: connection.clone(),
        })
    }

    /// Closes a connection that nobody needs, if there is one.
    pub(super) fn make_room(&self) {
        let inside = self.inside();
        let mut from: HashMap<_, usize> = HashMap::new();
        let open = || inside.iter().filter(|other| other.is_displaceable());
        for connection in open() {
            *from.entry(address(connection)).or_default() += 1;
        }
        let most = from.into_iter().max_by_key(|(_, count)| *count);
        if let Some((most, _)) = most {
            // There is one: it has just been counted.
            let _ = displace(open().filter(|other| address(other) == most));
        }
    }

    fn inside(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address(connection: &Connection) -> Option<IpAddr> {
    match connection.peer() {
        Peer::Tcp(address) => Some(address.ip().to_canonical()),
        Peer::Unix { .. } => None,
    }
}

/// Closes the one of these that has been quiet for longest.
fn displace<'c>(among: impl Iterator<Item = &'c Connection>) -> Option<()> {
    let quiet = among.filter(|other| other.is_displaceable());
    let longest = quiet.min_by_key(|other| other.quiet_since())?;
    longest.close("it had no call under way and made room for another");
    Some(())
}

/// A connection that is inside.
#[derive(Debug)]
pub(super) struct Inside {
    crowd: Crowd,
    connection: Connection,
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut inside = self.crowd.inside();
        inside.retain(|other| !other.is(&self.connection));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(host: u8) -> Connection {
        let address = ([127, 0, 0, host], 1000).into();
        Connection::new(Peer::Tcp(address))
    }

    #[test]
    fn an_address_has_its_share_and_displaces_its_own() {
        let crowd = Crowd::new(8);
        let all: Vec<_> = (0..6).map(|_| from(1)).collect();
        let mut inside: Vec<_> = all.iter().map(|one| crowd.enter(one).unwrap()).collect();
        let calls: Vec<_> = all[1..].iter().map(Connection::call).collect();
        inside.push(crowd.enter(&from(1)).unwrap());
        assert!(all[0].is_closed() && !all[1].is_closed());
        inside.remove(0);
        let last = inside.pop().unwrap();
        let _call = last.connection.call();
        inside.push(last);
        assert!(crowd.enter(&from(1)).is_none(), "all of them are busy");
        assert!(crowd.enter(&from(2)).is_some());
        drop(calls);
        assert!(crowd.enter(&from(1)).is_some());
    }

    #[test]
    fn room_is_made_by_the_quiet_of_the_address_that_has_most() {
        let crowd = Crowd::new(8);
        let all = [from(2), from(1), from(1), from(1)];
        let _inside: Vec<_> = all.iter().map(|one| crowd.enter(one).unwrap()).collect();
        all[1].log_in();
        crowd.make_room();
        let closed: Vec<_> = all.iter().map(Connection::is_closed).collect();
        assert_eq!(closed, [false, false, true, false]);
        crowd.make_room();
        crowd.make_room();
        crowd.make_room();
        assert!(!all[1].is_closed(), "it has logged in");
    }
}
