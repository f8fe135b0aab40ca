package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const patience = 30 * time.Second

// access is what `Broker.client_settings("franz-go")` returns.
type access struct {
	Brokers   []string `json:"brokers"`
	CaFile    string   `json:"ca_file"`
	KeyFile   string   `json:"key_file"`
	Mechanism string   `json:"mechanism"`
	User      string   `json:"user"`
	Password  string   `json:"password"`
	Token     string   `json:"token"`
}

func (a access) options() ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(a.Brokers...)}
	if mechanism := a.sasl(); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	if a.CaFile == "" {
		return options, nil
	}
	pem, err := os.ReadFile(a.CaFile)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if a.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(a.KeyFile, a.KeyFile)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return append(options, kgo.DialTLSConfig(config)), nil
}

func (a access) sasl() sasl.Mechanism {
	switch a.Mechanism {
	case "PLAIN":
		return plain.Auth{User: a.User, Pass: a.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: a.User, Pass: a.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: a.User, Pass: a.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: a.Token}.AsMechanism()
	}
	return nil
}

// login logs in, writes a record and reads it back, for each line on stdin: `round_trip`.
func login([]string) error {
	for asked := range requests() {
		var given struct {
			Settings            access
			Topic, Group, Value string
		}
		if err := json.Unmarshal(asked.Arguments, &given); err != nil {
			return err
		}
		value, err := roundTrip(given.Settings, given.Topic, given.Group, given.Value)
		answer(value, err)
	}
	return nil
}

func roundTrip(given access, topic, group, value string) (string, error) {
	options, err := given.options()
	if err != nil {
		return "", err
	}
	client, err := kgo.NewClient(append(options, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(pollTime))...)
	if err != nil {
		return "", err
	}
	defer client.Close()
	limited, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := client.Ping(limited); err != nil {
		return "", err
	}
	if err := client.ProduceSync(limited, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		return "", err
	}
	for limited.Err() == nil {
		if records := client.PollFetches(limited).Records(); len(records) > 0 {
			return string(records[0].Value), nil
		}
	}
	return "", fmt.Errorf("no record: %w", limited.Err())
}
