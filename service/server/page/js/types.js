// @ts-check
/**
 * What the service sends (`GET /api/v1/live`), and what the page makes of it. Only types: nothing runs here.
 * Times are nanoseconds (`*_ns`) or milliseconds since 1970 (`*_ms`), distances and sizes bytes, sectors 512 bytes.
 *
 * @typedef {object} StoreInfo
 * @property {string} name
 * @property {string} path
 * @property {string} layout
 * @property {string} device whole disk below; empty: unknown
 * @property {string} backend
 * @property {number} block_size bytes
 * @property {number|null} device_sectors
 *
 * @typedef {object} Hello
 * @property {string} version
 * @property {number} started_unix_ms
 * @property {number} now_unix_ms
 * @property {number} frame_ms
 * @property {number} past_frame_ms
 * @property {string[]} owners
 * @property {string[]} operations
 * @property {string[]} stages
 * @property {string} trace_url template with `{trace_id}`; empty: none
 * @property {StoreInfo[]} stores
 *
 * @typedef {object} MethodPart requests of one method within one frame
 * @property {number} count
 * @property {number} errors
 * @property {number} bytes
 * @property {number} total_ns
 * @property {number} p50_ns
 * @property {number} p99_ns
 * @property {Record<string, number>} stages ns by stage
 * @property {[number, number, number][]} latency from ns, to ns, count
 *
 * @typedef {[number, number, number, number, number, number, number]} HeatCell
 *   seek from, seek to (bytes), device time from, to (ns), owner, operation, count
 * @typedef {[string, string, number, number, number]} Move owner, moved by, requests, seeks, travel in bytes
 * @typedef {[number, number, number, number, number, number|null, number|null, number, boolean]} Dot
 *   ms since 1970, sector, sectors, owner, operation, seek bytes, device ns, request id or 0, owner not certain
 *
 * @typedef {object} Totals since the service started
 * @property {Record<string, {count: number, errors: number, bytes: number}>} requests by method
 * @property {Record<string, Record<string, [number, number]>>} block by owner and operation: requests, bytes
 * @property {number} data_requests
 * @property {number} sequential
 * @property {number} lost_events
 *
 * @typedef {object} Numbers of an open store
 * @property {number} lumps
 * @property {number} data_capacity_bytes
 * @property {number} data_used_bytes
 * @property {number} largest_free_bytes
 * @property {number} bad_bytes those that the disk has refused to write
 * @property {number} bad_places that they belong to
 * @property {[number, number][]} bad_at the first of these places: offset on the device, and bytes
 * @property {number} journal_capacity_bytes
 * @property {number} journal_used_bytes
 * @property {number} journal_live_bytes
 * @property {number} queue_length
 * @property {number} under_way
 * @property {number} io_errors
 * @property {number} checksum_failures
 * @property {number} scrub_corrupt
 * @property {number} scrub_read_errors
 * @property {number} scrub_last_pass_ns since 1970; 0: none has ended
 *
 * @typedef {object} Health
 * @property {string} state in the words of `lumpscope stores`
 * @property {string} why
 * @property {Numbers|null} numbers null: it is not open
 * @property {{alert: string, text: string}[]} firing conditions of the alerts that hold now
 *
 * @typedef {object} StorePart one store within one frame
 * @property {Health} health
 * @property {boolean} observed
 * @property {string} whyNot
 * @property {string[]} doubts
 * @property {Record<string, MethodPart>} requests
 * @property {HeatCell[]} heat
 * @property {number} dataRequests
 * @property {number} sequential
 * @property {Move[]} moves
 * @property {Record<string, number>} lost ns by owner class
 * @property {Dot[]} dots
 * @property {number} dotsLeftOut those of the interval that are not in `dots`
 *
 * @typedef {object} Frame
 * @property {number} seq
 * @property {number} from begin of its interval, ms since 1970
 * @property {number} to end of its interval
 * @property {number} skipped frames that were lost before it
 * @property {boolean} gap nothing is known of the time before `from`
 * @property {boolean} past made whether a page was open or not
 * @property {number} dotless until when it has no dots: they are made while a page is open
 * @property {Record<string, StorePart>} stores
 *
 * @typedef {object} Column some frames that follow each other without a gap
 * @property {number} from ms since 1970
 * @property {number} to
 * @property {Frame[]} frames
 *
 * @typedef {{from: number, to: number, skipped: number, before: boolean, comes: boolean}} Gap ms since 1970; frames
 *   that this browser was too slow for; true: it lies before the first frame; true: the service will tell of it
 *
 * @typedef {object} View all that a chart may look at
 * @property {Hello} hello
 * @property {StoreInfo[]} stores those that are shown
 * @property {Frame[]} frames of the time window, oldest first
 * @property {Column[]} columns the same, at most about sixty
 * @property {number} each length of most columns, ms
 * @property {Gap[]} gaps times of which nothing is known
 * @property {number} from begin of the time window, ms since 1970
 * @property {number} to its end
 * @property {number} seq of the last frame; -1: none yet
 * @property {Record<string, Totals>} totals by store
 * @property {import("./palette.js").Palette} palette
 * @property {Record<string, string>} choices what was chosen in each section
 *
 * @typedef {object} Sheet a table
 * @property {string[]} head
 * @property {(string|{text: string, href: string})[][]} rows
 *
 * @typedef {object} Block one block request of an explained request
 * @property {string} operation
 * @property {string} purpose
 * @property {number} sector
 * @property {number} sectors
 * @property {number} own_bytes
 * @property {boolean} shared
 * @property {boolean} [uncertain]
 * @property {number|null} seek_bytes
 * @property {string} previous_owner
 * @property {number|null} queued_at_ns
 * @property {number|null} issued_at_ns
 * @property {number|null} done_at_ns
 * @property {number} queue_ns
 * @property {number} device_ns
 * @property {boolean} failed
 * @property {string} [failure] why; empty: not known
 * @property {string[]} flags preflush, fua, meta, ahead
 *
 * @typedef {object} Explained a request that has ended
 * @property {number} request_id
 * @property {string} store
 * @property {string} device
 * @property {string} method
 * @property {number} bytes
 * @property {boolean} ok
 * @property {number} begin_unix_ns
 * @property {number} total_ns
 * @property {string} trace_id
 * @property {string} sentence
 * @property {Record<string, number>} stages
 * @property {{from_ns: number, took_ns: number, stage: string, text: string}[]} steps
 * @property {number} block_requests
 * @property {Block[]} blocks
 * @property {Record<string, number>} lost_ns
 * @property {number} [lost_in_all_ns]
 * @property {number | null} [waited_for_request_id]
 * @property {string} incomplete
 */
export {};
