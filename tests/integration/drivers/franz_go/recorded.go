package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions   = 3
	betweenSends = 2 * time.Millisecond
)

type fields map[string]any

type recorder struct {
	bootstrap, topic        string
	history                 *os.File
	ids                     atomic.Int64
	sent, committed, polled atomic.Int64
	over                    context.Context
	failure                 atomic.Pointer[error]
}

// recorded: see recorded.py.
func recorded(arguments []string) error {
	file, err := os.OpenFile(arguments[2], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	over, end := context.WithCancel(context.Background())
	r := &recorder{bootstrap: arguments[0], topic: arguments[1], history: file, over: over}
	var running sync.WaitGroup
	for _, work := range []func() error{r.send, r.transact, r.consume} {
		running.Go(func() {
			if err := work(); err != nil {
				r.failure.CompareAndSwap(nil, &err)
			}
		})
	}
	for asked := range requests() {
		if asked.Op == "finish" {
			end()
			running.Wait()
		}
		if failure := r.failure.Load(); failure != nil {
			answer(nil, *failure)
		} else {
			answer(fields{"sent": r.sent.Load(), "committed": r.committed.Load(), "polled": r.polled.Load()}, nil)
		}
	}
	end()
	return nil
}

func (r *recorder) note(process, event, operation string, more fields) {
	row := fields{"process": process, "event": event, "operation": operation}
	for name, value := range more {
		row[name] = value
	}
	line, _ := json.Marshal(row)
	if _, err := r.history.Write(append(line, '\n')); err != nil {
		r.failure.CompareAndSwap(nil, &err)
	}
}

func (r *recorder) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(r.bootstrap, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(pollTime))...)
}

func (r *recorder) produce(process string, client *kgo.Client, value string, partition int32) {
	id := r.ids.Add(1)
	record := &kgo.Record{Topic: r.topic, Partition: partition, Value: []byte(value)}
	r.note(process, "invoke", "send", fields{"id": id, "topic": r.topic, "partition": partition, "value": value})
	client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
		if err != nil {
			r.note(process, "info", "send", fields{"id": id, "error": err.Error()})
		} else {
			r.note(process, "ok", "send", fields{"id": id, "offset": record.Offset})
		}
	})
}

func (r *recorder) send() error {
	client, err := r.client()
	if err != nil {
		return err
	}
	defer client.Close()
	for r.over.Err() == nil {
		number := r.sent.Load()
		r.produce("p", client, fmt.Sprintf("p %d", number), int32(number%partitions))
		r.sent.Add(1)
		time.Sleep(betweenSends)
	}
	return client.Flush(context.Background())
}

func (r *recorder) transact() error {
	client, err := r.client(kgo.TransactionalID(r.topic))
	if err != nil {
		return err
	}
	defer client.Close()
	for r.over.Err() == nil {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		r.note("x0", "ok", "begin", nil)
		for partition := range int32(partitions) {
			r.produce("x0", client, fmt.Sprintf("x0 %d %d", r.committed.Load(), partition), partition)
		}
		if err := client.Flush(context.Background()); err != nil {
			return err
		}
		r.note("x0", "invoke", "commit", nil)
		if err := client.EndTransaction(context.Background(), kgo.TryCommit); err != nil {
			return err
		}
		r.note("x0", "ok", "commit", nil)
		r.committed.Add(1)
	}
	return nil
}

func (r *recorder) consume() error {
	client, err := r.client(kgo.ConsumerGroup(r.topic), kgo.ConsumeTopics(r.topic), kgo.FetchMaxWait(pollTime),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.Balancers(kgo.RangeBalancer()), kgo.BlockRebalanceOnPoll(), kgo.OnPartitionsAssigned(r.onAssigned))
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	r.note("c", "ok", "subscribe", fields{"topics": []string{r.topic}})
	for r.over.Err() == nil {
		limited, cancel := context.WithTimeout(r.over, 2*pollTime)
		r.note("c", "invoke", "poll", nil)
		records := [][]any{}
		client.PollFetches(limited).EachRecord(func(record *kgo.Record) {
			records = append(records, []any{record.Topic, record.Partition, record.Offset, string(record.Value)})
		})
		cancel()
		r.note("c", "ok", "poll", fields{"records": records, "isolation": "read_committed"})
		r.polled.Add(int64(len(records)))
		client.AllowRebalance()
	}
	return nil
}

func (r *recorder) onAssigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	assigned := [][]any{}
	for topic, numbers := range added {
		for _, number := range numbers {
			assigned = append(assigned, []any{topic, number})
		}
	}
	r.note("c", "ok", "assign", fields{"partitions": assigned})
}
