// The Go driver's events of the deployment that SDAM_URI names, until standard input ends.
//
// Prints SDAM events as lines of JSON for `sdam check-log`. The client is used meanwhile. For the driver
// 1.8 of Debian's golang-mongodb-mongo-driver-dev.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/event"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/description"
	"go.mongodb.org/mongo-driver/mongo/options"
)

type object map[string]interface{}

var mutex sync.Mutex

// emit prints a line, one at a time.
func emit(line object) {
	mutex.Lock()
	defer mutex.Unlock()
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

// tell prints an event.
func tell(name string, fields object) {
	line := object{"time": time.Now().UnixMilli(), "event": name}
	for key, value := range fields {
		line[key] = value
	}
	emit(line)
}

// server says what the driver's own String says of a server, and its set.
func server(s description.Server) object {
	told := object{"address": s.Addr.String(), "type": s.Kind.String()}
	if s.SetName != "" {
		told["setName"] = s.SetName
	}
	if s.AverageRTTSet {
		told["roundTripTimeMS"] = float64(s.AverageRTT) / 1e6
	}
	if s.LastError != nil {
		told["error"] = s.LastError.Error()
	}
	return told
}

func topology(t description.Topology) object {
	servers := []object{}
	for _, s := range t.Servers {
		servers = append(servers, server(s))
	}
	return object{"type": t.Kind.String(), "servers": servers}
}

// monitor prints all events; heartbeats are told without their replies, which the driver does not keep.
func monitor() *event.ServerMonitor {
	return &event.ServerMonitor{
		TopologyOpening: func(e *event.TopologyOpeningEvent) {
			tell("topologyOpening", object{"topologyId": e.TopologyID.Hex()})
		},
		TopologyClosed: func(e *event.TopologyClosedEvent) {
			tell("topologyClosed", object{"topologyId": e.TopologyID.Hex()})
		},
		TopologyDescriptionChanged: func(e *event.TopologyDescriptionChangedEvent) {
			tell("topologyDescriptionChanged", object{"topologyId": e.TopologyID.Hex(),
				"previousDescription": topology(e.PreviousDescription), "newDescription": topology(e.NewDescription)})
		},
		ServerOpening: func(e *event.ServerOpeningEvent) {
			tell("serverOpening", object{"topologyId": e.TopologyID.Hex(), "address": e.Address.String()})
		},
		ServerClosed: func(e *event.ServerClosedEvent) {
			tell("serverClosed", object{"topologyId": e.TopologyID.Hex(), "address": e.Address.String()})
		},
		ServerDescriptionChanged: func(e *event.ServerDescriptionChangedEvent) {
			tell("serverDescriptionChanged", object{"topologyId": e.TopologyID.Hex(), "address": e.Address.String(),
				"previousDescription": server(e.PreviousDescription), "newDescription": server(e.NewDescription)})
		},
		ServerHeartbeatStarted: func(e *event.ServerHeartbeatStartedEvent) {
			tell("serverHeartbeatStarted", object{"connectionId": e.ConnectionID, "awaited": e.Awaited})
		},
		ServerHeartbeatSucceeded: func(e *event.ServerHeartbeatSucceededEvent) {
			tell("serverHeartbeatSucceeded", object{"connectionId": e.ConnectionID, "awaited": e.Awaited})
		},
		ServerHeartbeatFailed: func(e *event.ServerHeartbeatFailedEvent) {
			tell("serverHeartbeatFailed", object{"connectionId": e.ConnectionID, "awaited": e.Awaited,
				"failure": e.Failure.Error()})
		},
	}
}

func main() {
	emit(object{"heartbeatFrequencyMS": 1000, "connectTimeoutMS": 2000})
	settings := options.Client().ApplyURI(os.Getenv("SDAM_URI")).SetServerMonitor(monitor()).
		SetHeartbeatInterval(time.Second).SetConnectTimeout(2 * time.Second).
		SetServerSelectionTimeout(2 * time.Second)
	client, err := mongo.Connect(context.Background(), settings)
	if err != nil {
		panic(err)
	}
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	things := client.Database("app").Collection("things")
	for {
		if _, err := things.InsertOne(context.Background(), bson.M{"at": time.Now()}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		things.FindOne(context.Background(), bson.M{})
		select {
		case <-ended:
			client.Disconnect(context.Background())
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}
