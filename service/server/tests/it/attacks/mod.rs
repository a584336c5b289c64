//! Programs that attack the service, each kept in its short form. A file names what its attack must
//! not achieve.

mod browser;
mod buffers;
mod confined;
mod connections;
mod deadline;
mod files;
mod health;
mod kept;
mod log;
mod memory;
mod objects;
mod observe;
mod slow;
mod strangers;
mod sum;
mod victim;
mod withdrawn;
