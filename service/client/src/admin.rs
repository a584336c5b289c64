//! Administration of the service, and observation of its disks.

use lumpscope_proto::v1;

use crate::call::{Client, Repeat, call};
use crate::error::Error;
use crate::store::unary;

unary! {
    /// Returns when everything the store acknowledged before is on stable storage.
    admin sync Always ("the sync") SyncRequest => SyncResponse;
    /// Runs the journal's garbage collection once around the ring.
    admin collect_journal Always ("the garbage collection") CollectJournalRequest => CollectJournalResponse;
    /// Makes the scrubber begin a pass at once, or resume the one it has begun.
    admin start_scrub Always ("the start of the scrubber") StartScrubRequest => StartScrubResponse;
    /// Pauses the scrubber.
    admin stop_scrub Always ("the stop of the scrubber") StopScrubRequest => StopScrubResponse;
    /// State and findings of the scrubber.
    admin get_scrub Always ("the question about the scrubber") GetScrubRequest => GetScrubResponse;
    /// One store: its properties, its condition, its numbers.
    admin describe_store Always ("the description") DescribeStoreRequest => DescribeStoreResponse;
    /// Opens an existing store and serves it. [`Error::Ambiguous`] when the answer was lost.
    admin add_store Never ("the addition of the store") AddStoreRequest => AddStoreResponse;
    /// Takes a store out. [`Error::Ambiguous`] when the answer was lost.
    admin remove_store Never ("the removal of the store") RemoveStoreRequest => RemoveStoreResponse;
    /// Stops taking new requests on data, and waits for those under way.
    admin drain Always ("the drain") DrainRequest => DrainResponse;
    /// Takes requests again.
    admin resume Always ("the resumption") ResumeRequest => ResumeResponse;
    /// The service: version, settings, privileges it still holds.
    admin describe_service Always ("the description") DescribeServiceRequest => DescribeServiceResponse;
    /// Makes the service read certificates and tokens again.
    admin reload Always ("the reload") ReloadRequest => ReloadResponse;
    /// The work of the disks, tied to the requests that caused it.
    observe report Always ("the report") ReportRequest => ReportResponse;
    /// One request that has ended, explained.
    observe explain Always ("the explanation") ExplainRequest => ExplainResponse;
    /// The slowest requests of the last minutes, explained.
    observe list_slowest Always ("the list of the slowest") ListSlowestRequest => ListSlowestResponse;
    /// The observer's programs, its event policy, and the observation and guard of each store.
    observe describe_observer Always ("the description") DescribeObserverRequest => DescribeObserverResponse;
    /// Changes the selection of block requests handed out as events.
    observe set_events Always ("the change of the event policy") SetEventsRequest => SetEventsResponse;
}
