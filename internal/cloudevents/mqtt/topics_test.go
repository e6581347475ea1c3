package mqtt

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

func eventOf(sub cloudevents.SubResource, action cloudevents.Action, extensions ...string) *cloudevents.Event {
	event := cloudevents.New("s", cloudevents.Type{DataType: cloudevents.ManifestBundles, SubResource: sub, Action: action}, time.Now())
	for i := 0; i < len(extensions); i += 2 {
		event.Extensions[extensions[i]] = extensions[i+1]
	}
	return event
}

// CE-08: events of resources go to topics with the names of source and cluster, and requests for all to the broadcasts.
func TestRoutes(t *testing.T) {
	t.Parallel()
	ofSource := Topics{SourceEvents: "sources/mwrsctrl/clusters/+/sourceevents", AgentEvents: "$share/hubs/sources/mwrsctrl/clusters/+/agentevents",
		SourceBroadcast: "sources/mwrsctrl/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast"}
	ofAgent := Topics{SourceEvents: "sources/+/clusters/+/sourceevents", AgentEvents: "sources/+/clusters/+/agentevents",
		SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast"}
	for _, test := range []struct {
		routes Routes
		event  *cloudevents.Event
		want   string
	}{
		{ofSource.ForSource("mwrsctrl"), eventOf(cloudevents.Spec, cloudevents.Update, cloudevents.ExtensionClusterName, "c1"),
			"sources/mwrsctrl/clusters/c1/sourceevents"},
		{ofSource.ForSource("mwrsctrl"), eventOf(cloudevents.Status, cloudevents.Resync), "sources/mwrsctrl/sourcebroadcast"},
		{ofAgent.ForAgent("c1"), eventOf(cloudevents.Status, cloudevents.Update, cloudevents.ExtensionOriginalSource, "mwrsctrl"),
			"sources/mwrsctrl/clusters/c1/agentevents"},
		{ofAgent.ForAgent("c1"), eventOf(cloudevents.Spec, cloudevents.Resync), "clusters/c1/agentbroadcast"},
	} {
		if got, err := test.routes.To(test.event); err != nil || got != test.want {
			t.Errorf("%s: %q, %v; want %s", test.event.Type, got, err, test.want)
		}
	}
	if got, want := ofAgent.ForAgent("c1").From, []string{"sources/+/clusters/c1/sourceevents", "sources/+/sourcebroadcast"}; !slices.Equal(got, want) {
		t.Errorf("an agent subscribes to %s, want %s", got, want)
	}
	if got, want := ofSource.ForSource("mwrsctrl").From, []string{ofSource.AgentEvents, ofSource.AgentBroadcast}; !slices.Equal(got, want) {
		t.Errorf("a source subscribes to %s, want %s", got, want)
	}
}

// CE-08: no name leads to the topic of somebody else.
func TestRoutesRefuse(t *testing.T) {
	t.Parallel()
	topics := Topics{SourceEvents: "sources/a/clusters/+/sourceevents", AgentEvents: "sources/+/clusters/+/agentevents"}
	for _, name := range []string{"", "+", "#", "c1/x", "c1/#"} {
		if got, err := topics.ForSource("a").To(eventOf(cloudevents.Spec, cloudevents.Update, cloudevents.ExtensionClusterName, name)); err == nil {
			t.Errorf("cluster %q: the event goes to %s", name, got)
		}
		if got, err := topics.ForAgent("c1").To(eventOf(cloudevents.Status, cloudevents.Update, cloudevents.ExtensionOriginalSource, name)); err == nil {
			t.Errorf("source %q: the event goes to %s", name, got)
		}
	}
}

// CE-08: the parts of a topic that a message has come by.
func TestNamesInTopics(t *testing.T) {
	t.Parallel()
	for topic, want := range map[string]string{
		"sources/s/clusters/c/agentevents": "s c", "x/y/sources/s/clusters/c/agentevents": "s c", "clusters/c/agentbroadcast": " c",
		"sources/s/sourcebroadcast": "s ", "sources": " ", "": " ",
	} {
		if got := Source(topic) + " " + Cluster(topic); got != want {
			t.Errorf("%s: %q, want %q", topic, got, want)
		}
	}
}

// CE-08: what is wrong with a configuration is said with the name of the field.
func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	const topics = "topics: {sourceEvents: sources/a/clusters/+/sourceevents, agentEvents: sources/a/clusters/+/agentevents}\n"
	for content, want := range map[string]string{
		topics:                             "brokerHost",
		"brokerHost: localhost\n" + topics: "brokerHost",
		"brokerHost: localhost:1883\n":     "topics.sourceEvents",
		"brokerHost: localhost:1883\npubQoS: 3\n" + topics:                      "pubQoS",
		"brokerHost: localhost:1883\ndialTimeout: 0s\n" + topics:                "dialTimeout",
		"brokerHost: localhost:1883\npassword: x\n" + topics:                    "username",
		"brokerHost: localhost:1883\nhost: x\n" + topics:                        "host",
		"brokerHost: localhost:1883\ncaFile: /nowhere\n" + topics:               "caFile",
		"brokerHost: localhost:1883\ncaData: eA==\n" + topics:                   "caData",
		"brokerHost: localhost:1883\nclientCertData: eA==\n" + topics:           "clientKey",
		"brokerHost: localhost:1883\ntopics: {sourceEvents: a, agentEvents: b}": "topics.agentEvents",
	} {
		if _, err := Load(file(t, content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %s", content, err, want)
		}
	}
	config, err := Load(file(t, "brokerHost: localhost:1883\n"+topics))
	if err != nil {
		t.Fatal(err)
	}
	if config.keepAlive() != 60 || config.dialTimeout() != time.Minute || qosOf(config.PubQoS) != 1 || qosOf(config.SubQoS) != 1 {
		t.Errorf("the defaults are %d, %s, %d, %d", config.keepAlive(), config.dialTimeout(), qosOf(config.PubQoS), qosOf(config.SubQoS))
	}
}
