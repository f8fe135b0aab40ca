package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type asking struct {
	Member, Group, Topic, Mode, Acquires, Kind string
	Topics                                     []string
	Most, Partition                            int32
	Offset, Ms                                 int64
	Offsets                                    map[int32]int64
}

type sharingMember struct {
	client     *kgo.Client
	isImplicit bool
	most       int
	polled     map[string]*kgo.Record
	mutex      sync.Mutex // of `told`: the callback has a goroutine of its own
	told       [][]any
}

var kinds = map[string]kgo.AckStatus{
	"accept": kgo.AckAccept, "release": kgo.AckRelease, "reject": kgo.AckReject, "renew": kgo.AckRenew,
}

// share: members of share groups, and their administrator, see sharer.py.
func share(arguments []string) error {
	bootstrap, members := arguments[0], map[string]*sharingMember{}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	for asked := range requests() {
		var given asking
		if err := json.Unmarshal(asked.Arguments, &given); err != nil {
			return err
		}
		if asked.Op == "open" {
			member, err := openSharing(bootstrap, given)
			members[given.Member] = member
			answer(nil, err)
		} else if given.Member != "" {
			answer(members[given.Member].run(asked.Op, given))
		} else {
			answer(administer(client, asked.Op, given))
		}
	}
	return nil
}

func openSharing(bootstrap string, given asking) (*sharingMember, error) {
	member := &sharingMember{polled: map[string]*kgo.Record{}, told: [][]any{}, most: int(given.Most)}
	member.isImplicit = given.Mode == "implicit"
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ShareGroup(given.Group), kgo.ConsumeTopics(given.Topics...),
		kgo.ShareMaxRecords(given.Most), kgo.MetadataMinAge(pollTime), kgo.MetadataMaxAge(2 * pollTime),
		kgo.UnknownTopicRetries(-1),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			member.mutex.Lock()
			defer member.mutex.Unlock()
			for _, each := range results {
				member.told = append(member.told, []any{fmt.Sprintf("%s-%d", each.Topic, each.Partition), nil, code(each.Err)})
			}
		}),
	}
	if given.Acquires == "record_limit" {
		options = append(options, kgo.ShareMaxRecordsStrict())
	}
	var err error
	member.client, err = kgo.NewClient(options...)
	return member, err
}

func code(err error) any {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Code
	} else if err != nil {
		return -1
	}
	return nil
}

func (m *sharingMember) run(operation string, given asking) (any, error) {
	limited, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch operation {
	case "subscribe":
		for _, topic := range m.client.GetConsumeTopics() {
			if !slices.Contains(given.Topics, topic) {
				m.client.PurgeTopicsFromConsuming(topic)
			}
		}
		m.client.AddConsumeTopics(given.Topics...)
		return nil, nil
	case "subscription":
		topics := m.client.GetConsumeTopics()
		slices.Sort(topics)
		return append([]string{}, topics...), nil
	case "poll":
		return m.poll(time.Duration(given.Ms) * time.Millisecond)
	case "acknowledge":
		record := m.polled[place(given.Topic, given.Partition, given.Offset)]
		if record == nil {
			return nil, errors.New("not polled")
		}
		record.Ack(kinds[given.Kind])
		return nil, nil
	case "commit":
		m.mutex.Lock()
		before := len(m.told)
		m.mutex.Unlock()
		m.accept()
		err := m.client.FlushAcks(limited)
		m.mutex.Lock()
		defer m.mutex.Unlock()
		outcomes := map[string]any{}
		for _, row := range m.told[before:] {
			outcomes[row[0].(string)] = cmp.Or(outcomes[row[0].(string)], row[2])
		}
		return outcomes, err
	case "commit_async": // the client sends what is marked by itself
		m.accept()
		return nil, nil
	case "told":
		m.mutex.Lock()
		defer m.mutex.Unlock()
		return slices.Clone(m.told), nil
	case "close":
		m.client.Close()
		return nil, nil
	}
	return nil, fmt.Errorf("no operation %s", operation)
}

func (m *sharingMember) accept() {
	if m.isImplicit {
		m.client.MarkAcks(kgo.AckAccept)
	}
}

func place(topic string, partition int32, offset int64) string {
	return fmt.Sprintf("%s-%d@%d", topic, partition, offset)
}

func (m *sharingMember) poll(limit time.Duration) (any, error) {
	limited, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	fetches := m.client.PollRecords(limited, m.most)
	var failure error
	fetches.EachError(func(_ string, _ int32, err error) {
		if limited.Err() == nil && !kerr.IsRetriable(err) {
			failure = err
		}
	})
	found := [][]any{}
	fetches.EachRecord(func(record *kgo.Record) {
		m.polled[place(record.Topic, record.Partition, record.Offset)] = record
		var value any
		if record.Value != nil {
			value = string(record.Value)
		}
		found = append(found, []any{record.Topic, record.Partition, record.Offset, value, record.DeliveryCount()})
	})
	return found, failure
}

func administer(client *kgo.Client, operation string, given asking) (any, error) {
	limited, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch operation {
	case "list":
		response, err := kmsg.NewPtrListGroupsRequest().RequestWith(limited, client)
		if err != nil {
			return nil, err
		}
		for _, each := range response.Groups {
			if each.Group == given.Group {
				return []string{each.GroupType, each.GroupState}, nil
			}
		}
		return []string{}, nil
	case "describe":
		request := kmsg.NewPtrShareGroupDescribeRequest()
		request.GroupIDs = []string{given.Group}
		response, err := request.RequestWith(limited, client)
		if err != nil {
			return nil, err
		}
		group, assigned := response.Groups[0], [][]string{}
		for _, member := range group.Members {
			partitions := []string{}
			for _, topic := range member.Assignment.TopicPartitions {
				for _, partition := range topic.Partitions {
					partitions = append(partitions, fmt.Sprintf("%s-%d", topic.Topic, partition))
				}
			}
			slices.Sort(partitions)
			assigned = append(assigned, partitions)
		}
		return fields{"state": group.GroupState, "assigned": assigned}, kerr.ErrorForCode(group.ErrorCode)
	case "offsets":
		request, group := kmsg.NewPtrDescribeShareGroupOffsetsRequest(), kmsg.NewDescribeShareGroupOffsetsRequestGroup()
		group.GroupID = given.Group
		request.Groups = append(request.Groups, group)
		response, err := request.RequestWith(limited, client)
		if err != nil {
			return nil, err
		}
		starts := fields{}
		for _, topic := range response.Groups[0].Topics {
			for _, each := range topic.Partitions {
				starts[fmt.Sprintf("%s-%d", topic.Topic, each.Partition)] = []int64{each.StartOffset, each.Lag}
			}
		}
		return starts, kerr.ErrorForCode(response.Groups[0].ErrorCode)
	case "alter":
		request, topic := kmsg.NewPtrAlterShareGroupOffsetsRequest(), kmsg.NewAlterShareGroupOffsetsRequestTopic()
		request.GroupID, topic.Topic = given.Group, given.Topic
		for partition, offset := range given.Offsets {
			row := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
			row.Partition, row.StartOffset = partition, offset
			topic.Partitions = append(topic.Partitions, row)
		}
		request.Topics = append(request.Topics, topic)
		response, err := request.RequestWith(limited, client)
		if err != nil {
			return nil, err
		}
		if err = kerr.ErrorForCode(response.ErrorCode); err == nil {
			err = kerr.ErrorForCode(response.Topics[0].Partitions[0].ErrorCode)
		}
		return nil, err
	case "forget":
		request, topic := kmsg.NewPtrDeleteShareGroupOffsetsRequest(), kmsg.NewDeleteShareGroupOffsetsRequestTopic()
		request.GroupID, topic.Topic = given.Group, given.Topic
		request.Topics = append(request.Topics, topic)
		response, err := request.RequestWith(limited, client)
		if err != nil {
			return nil, err
		}
		if err = kerr.ErrorForCode(response.ErrorCode); err == nil {
			err = kerr.ErrorForCode(response.Topics[0].ErrorCode)
		}
		return nil, err
	case "delete":
		request := kmsg.NewPtrDeleteGroupsRequest()
		request.Groups = []string{given.Group}
		response, err := request.RequestWith(limited, client)
		if err != nil {
			return nil, err
		}
		return nil, kerr.ErrorForCode(response.Groups[0].ErrorCode)
	}
	return nil, fmt.Errorf("no operation %s", operation)
}
