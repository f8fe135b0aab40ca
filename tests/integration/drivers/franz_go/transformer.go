package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// transform: see transformer.py.
func transform(arguments []string) error {
	bootstrap, group, source, target, transactionalID := arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]
	given := struct {
		Records int `json:"records_per_transaction"`
	}{}
	if err := json.Unmarshal([]byte(arguments[5]), &given); err != nil {
		return err
	}
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.TransactionalID(transactionalID),
		kgo.TransactionTimeout(10*time.Second),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(3*time.Second),
		kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.FetchMaxWait(pollTime),
	)
	if err != nil {
		return err
	}
	for {
		if err := oneTransaction(session, target, given.Records); err != nil {
			return err
		}
	}
}

func oneTransaction(session *kgo.GroupTransactSession, target string, most int) error {
	background := context.Background()
	fetches := session.PollRecords(background, most)
	if fetches.NumRecords() == 0 {
		return nil
	}
	if err := session.Begin(); err != nil {
		return err
	}
	failed := false
	fetches.EachRecord(func(record *kgo.Record) {
		made := &kgo.Record{Topic: target, Partition: record.Partition, Key: record.Key, Value: record.Value}
		session.Produce(background, made, func(_ *kgo.Record, err error) { failed = failed || err != nil })
	})
	if err := session.Client().Flush(background); err != nil {
		return err
	}
	_, err := session.End(background, kgo.TransactionEndTry(!failed))
	return err
}
