package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const pollTime = 50 * time.Millisecond

type settings struct {
	SessionTimeoutMs     int64   `json:"session_timeout_ms"`
	EnableAutoCommit     bool    `json:"enable_auto_commit"`
	AutoCommitIntervalMs int64   `json:"auto_commit_interval_ms"`
	GroupInstanceID      *string `json:"group_instance_id"`
	Assignor             string  `json:"partition_assignment_strategy"`
	AutoOffsetReset      string  `json:"auto_offset_reset"`
	Protocol             string  `json:"group_protocol"`
}

func (s settings) options() []kgo.Opt {
	balancers := map[string]kgo.GroupBalancer{
		"range":              kgo.RangeBalancer(),
		"roundrobin":         kgo.RoundRobinBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	start := kgo.NewOffset().AtStart()
	switch s.AutoOffsetReset {
	case "latest":
		start = kgo.NewOffset().AtEnd()
	case "none":
		start = kgo.NoResetOffset().AtCommitted()
	}
	options := []kgo.Opt{
		kgo.SessionTimeout(time.Duration(s.SessionTimeoutMs) * time.Millisecond),
		kgo.RebalanceTimeout(10 * time.Second),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.FetchMaxWait(pollTime),
		kgo.Balancers(balancers[s.Assignor]),
		kgo.ConsumeResetOffset(start),
		kgo.ConsumeStartOffset(start),
	}
	if s.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if s.GroupInstanceID != nil {
		options = append(options, kgo.InstanceID(*s.GroupInstanceID))
	}
	if !s.EnableAutoCommit {
		return append(options, kgo.DisableAutoCommit())
	}
	if s.AutoCommitIntervalMs > 0 {
		options = append(options, kgo.AutoCommitInterval(time.Duration(s.AutoCommitIntervalMs)*time.Millisecond))
	}
	return options
}

type groupMember struct {
	client   *kgo.Client
	group    string
	topic    string
	mutex    sync.Mutex // callbacks have goroutines of their own
	assigned []int32
	lost     []int32
	read     [][]any
	failure  error
	isClosed bool

	commitsAutomatically bool
}

func member(arguments []string) error {
	bootstrap, group, topic := arguments[0], arguments[1], arguments[2]
	given := settings{SessionTimeoutMs: 3000, Assignor: "range"}
	if err := json.Unmarshal([]byte(arguments[3]), &given); err != nil {
		return err
	}
	m := &groupMember{group: group, topic: topic, assigned: []int32{}, lost: []int32{}, read: [][]any{}}
	m.commitsAutomatically = given.EnableAutoCommit
	options := append(given.options(), kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.OnPartitionsAssigned(m.onAssigned), kgo.OnPartitionsRevoked(m.onRevoked), kgo.OnPartitionsLost(m.onLost))
	if strings.HasPrefix(topic, "^") {
		options = append(options, kgo.ConsumeRegex(), kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(pollTime))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	m.client = client
	m.serve()
	return nil
}

func (m *groupMember) serve() {
	asked := requests()
	for {
		select {
		case each, isOpen := <-asked:
			if !isOpen {
				return
			}
			answer(m.run(each))
		default:
			if m.isClosed || m.failure != nil {
				time.Sleep(pollTime)
			} else {
				m.poll()
			}
		}
	}
}

func (m *groupMember) poll() {
	limited, cancel := context.WithTimeout(context.Background(), pollTime)
	defer cancel()
	fetches := m.client.PollFetches(limited)
	fetches.EachError(func(_ string, _ int32, err error) {
		if limited.Err() == nil && !kerr.IsRetriable(err) && !joinsAgain(err) {
			m.failure = err
		}
	})
	fetches.EachRecord(func(record *kgo.Record) {
		m.read = append(m.read, []any{record.Partition, record.Offset, string(record.Value)})
	})
}

// Whether the client joins the group again by itself: in a rebalance that began meanwhile, or with a coordinator that has
// started again, and knows neither a generation whose assignments were never stored, nor who was in it.
func joinsAgain(err error) bool {
	return errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.UnknownMemberID) ||
		errors.Is(err, kerr.RebalanceInProgress)
}

func (m *groupMember) run(asked request) (any, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	switch asked.Op {
	case "assignment":
		slices.Sort(m.assigned)
		return m.assigned, nil
	case "lost":
		return m.lost, nil
	case "records":
		return m.read, nil
	case "failure":
		if m.failure == nil {
			return nil, nil
		}
		return describe(m.failure), nil
	}
	m.mutex.Unlock() // what follows may call back
	defer m.mutex.Lock()
	switch asked.Op {
	case "commit":
		return nil, m.client.CommitUncommittedOffsets(context.Background())
	case "committed":
		var where struct{ Partition int32 }
		if err := json.Unmarshal(asked.Arguments, &where); err != nil {
			return nil, err
		}
		return m.committed(where.Partition)
	case "close":
		m.poll() // what a poll returns is committed automatically once another has followed
		m.isClosed = true
		m.client.Close()
		return nil, nil
	}
	return nil, fmt.Errorf("no operation %s", asked.Op)
}

func (m *groupMember) committed(partition int32) (any, error) {
	topic := kmsg.NewOffsetFetchRequestTopic()
	topic.Topic, topic.Partitions = m.topic, []int32{partition}
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Group, fetch.Topics = m.group, []kmsg.OffsetFetchRequestTopic{topic}
	response, err := fetch.RequestWith(context.Background(), m.client)
	if err != nil {
		return nil, err
	}
	row := response.Topics[0].Partitions[0]
	if row.Offset < 0 {
		return nil, kerr.ErrorForCode(row.ErrorCode)
	}
	return row.Offset, kerr.ErrorForCode(row.ErrorCode)
}

func (m *groupMember) onAssigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, partitions := range added {
		m.assigned = append(m.assigned, partitions...)
	}
}

// A function of one's own replaces the commit that franz-go makes here by itself.
func (m *groupMember) onRevoked(ctx context.Context, client *kgo.Client, removed map[string][]int32) {
	if m.commitsAutomatically {
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "commit of what is revoked:", err)
		}
	}
	m.onLost(ctx, client, removed)
}

func (m *groupMember) onLost(_ context.Context, _ *kgo.Client, removed map[string][]int32) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, partitions := range removed {
		slices.Sort(partitions)
		m.lost = append(m.lost, partitions...)
		m.assigned = slices.DeleteFunc(m.assigned, func(each int32) bool { return slices.Contains(partitions, each) })
	}
}
