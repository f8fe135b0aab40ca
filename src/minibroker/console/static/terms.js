// The words of the console and what they mean. docs/glossary.md is made of them: what stands behind = is JSON.
// After a change: python docs/reference/generate.py

/** @type {Record<string, string>} */
export const TERMS = {
  "acts as": "The release of Apache Kafka whose requests, versions and defaults a minibroker offers: 2.0, unless --act-as names another.",
  "start": "Log start offset: the offset of the oldest message that a partition still has. Of a share group: where its part of the partition begins; it has acknowledged everything before.",
  "high watermark": "The offset up to which all in-sync replicas have a partition's messages. Consumers read only what is below it.",
  "last stable": "Last stable offset: the end of what a consumer with isolation.level=read_committed reads. It is the first message of the oldest open transaction, or the high watermark if none is open.",
  "log end": "Log end offset: the offset that the next message will get. Messages between the high watermark and the log end are not yet on all in-sync replicas.",
  "in sync": "The leader and those followers that have caught up with it (ISR). acks=all waits for all of them. A partition with fewer than it has replicas is under-replicated.",
  "lag": "How many messages a group has not read yet: from its committed offset to the high watermark. lag/s is how fast it grows; oldest unread is how long the first of them has waited.",
  "fetches only": "A client that reads and never commits, such as Spark's source. Kafka knows no group of it; a minibroker takes its last fetch for a commit.",
  "control socket": "A file through which tools on the same machine look into a minibroker: --control names it, and serve --console makes one. A broker of serve --brokers has it at DIR/cluster/N.control.",
  "purgatory": "Where a request waits for its condition or its deadline: a fetch for messages, a produce with acks=all for followers. No thread waits with it.",
  "wheel": "Timing wheel: the deadlines of all that waits, in rings of 256 slots of 1 ms, 256 ms and 65.5 s. Finding what is due takes the same small time however much waits.",
  "case": "Why a parked fetch is answered before its time is over. A: the broker no longer leads a partition. B: it does not know one. C: the log was truncated or rolled behind the fetch. D: there are enough bytes. E: a log directory is offline.",
  "session": "Fetch session (KIP-227): the broker remembers the partitions that a consumer reads, so that a fetch names only what has changed. Its epoch counts the fetches.",
  "held": "Kept back. An open transaction holds back the last stable offset; a quota holds back an answer; a test holds a follower, which then stops fetching.",
  "leader epoch": "The number of a leader's term in a partition. Each new leader, and each start of the broker, begins the next one. Followers use it to drop what only an earlier leader had.",
  "group epoch": "Counts the changes of a group of the consumer protocol: members that come or go, topics that they subscribe to. The assignment is made for an epoch, and each member has the epoch of the assignment that it has taken over.",
  "producer epoch": "The number of a producer's term under its transactional id. A producer that starts with the same id gets the next one, and fences the one before: its requests fail.",
  "assignment": "The partitions that each member of a group reads. While it changes, a member may have to revoke partitions, or wait for those that another has not yet revoked.",
  "controller": "The broker that decides for the cluster who leads which partition. Another takes over when it dies.",
  "leads": "The leader of a partition takes its messages and answers its readers; the other replicas copy from it."
}
