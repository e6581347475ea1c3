package mqtt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

// Topics are those of the events between sources, which have the specs of resources, and the agents of clusters, which have their
// statuses. A segment after "sources" is that of the source, and one after "clusters" that of the cluster; either is + in the configuration
// of whoever has to do with several.
type Topics struct {
	// SourceEvents is for specs, such as sources/mwrsctrl/clusters/+/sourceevents.
	SourceEvents string `json:"sourceEvents"`
	// AgentEvents is for statuses, such as sources/mwrsctrl/clusters/+/agentevents.
	AgentEvents string `json:"agentEvents"`
	// SourceBroadcast is where a source asks all agents for what they have, such as sources/mwrsctrl/sourcebroadcast.
	SourceBroadcast string `json:"sourceBroadcast,omitempty"`
	// AgentBroadcast is where an agent asks all sources for what they have, such as clusters/+/agentbroadcast.
	AgentBroadcast string `json:"agentBroadcast,omitempty"`
}

const (
	sourcesSegment  = "sources"
	clustersSegment = "clusters"
	anyName         = "+"
	shared          = "$share"
)

func (t Topics) validate() error {
	var problems []error
	for name, topic := range map[string]string{"sourceEvents": t.SourceEvents, "agentEvents": t.AgentEvents} {
		if nameIn(topic, sourcesSegment) == "" || nameIn(topic, clustersSegment) == "" {
			problems = append(problems, fmt.Errorf("topics.%s is %q, want a topic such as sources/SOURCE/clusters/+/%s", name, topic,
				strings.ToLower(name)))
		}
	}
	if t.SourceBroadcast != "" && nameIn(t.SourceBroadcast, sourcesSegment) == "" {
		problems = append(problems, fmt.Errorf("topics.sourceBroadcast is %q, want a topic such as sources/SOURCE/sourcebroadcast", t.SourceBroadcast))
	}
	if t.AgentBroadcast != "" && nameIn(t.AgentBroadcast, clustersSegment) == "" {
		problems = append(problems, fmt.Errorf("topics.agentBroadcast is %q, want a topic such as clusters/+/agentbroadcast", t.AgentBroadcast))
	}
	return errors.Join(problems...)
}

// nameIn is the segment after the given one; empty if there is none.
func nameIn(topic, segment string) string {
	segments := strings.Split(topic, "/")
	if i := slices.Index(segments, segment); i >= 0 && i+1 < len(segments) {
		return segments[i+1]
	}
	return ""
}

// Source is the source in a topic; empty if there is none.
func Source(topic string) string { return nameIn(topic, sourcesSegment) }

// Cluster is the cluster in a topic; empty if there is none.
func Cluster(topic string) string { return nameIn(topic, clustersSegment) }

// named is the topic with the names of source and cluster where it leaves them open. What is sent goes to a topic without the group that
// shares what is received.
func named(topic, source, cluster string) (string, error) {
	segments := strings.Split(topic, "/")
	if segments[0] == shared && len(segments) > 2 {
		segments = segments[2:]
	}
	for i := 1; i < len(segments); i++ {
		if segments[i] != anyName {
			continue
		}
		switch segments[i-1] {
		case sourcesSegment:
			segments[i] = source
		case clustersSegment:
			segments[i] = cluster
		}
		if name := segments[i]; name == "" || strings.ContainsAny(name, "+#/") {
			return "", fmt.Errorf("topic %s: %q is not a name of a %s", topic, name, strings.TrimSuffix(segments[i-1], "s"))
		}
	}
	return strings.Join(segments, "/"), nil
}

// ForSource are the topics of a source: where it sends an event to, and what it receives.
func (t Topics) ForSource(source string) Routes {
	return Routes{
		To: func(event *cloudevents.Event) (string, error) {
			eventType, err := cloudevents.ParseType(event.Type)
			if err != nil {
				return "", err
			}
			if eventType.Action == cloudevents.Resync && t.SourceBroadcast != "" {
				return named(t.SourceBroadcast, source, "")
			}
			return named(t.SourceEvents, source, event.Text(cloudevents.ExtensionClusterName))
		},
		From: present(t.AgentEvents, t.AgentBroadcast),
	}
}

// ForAgent are the topics of the agent of a cluster. What is about a resource goes to the source that the resource is from.
func (t Topics) ForAgent(cluster string) Routes {
	return Routes{
		To: func(event *cloudevents.Event) (string, error) {
			eventType, err := cloudevents.ParseType(event.Type)
			if err != nil {
				return "", err
			}
			if eventType.Action == cloudevents.Resync && t.AgentBroadcast != "" {
				return named(t.AgentBroadcast, "", cluster)
			}
			return named(t.AgentEvents, event.Text(cloudevents.ExtensionOriginalSource), cluster)
		},
		From: present(ofCluster(t.SourceEvents, cluster), t.SourceBroadcast),
	}
}

// ofCluster is the topic for this cluster, and for any source if it leaves that open.
func ofCluster(topic, cluster string) string {
	segments := strings.Split(topic, "/")
	for i := 1; i < len(segments); i++ {
		if segments[i-1] == clustersSegment && segments[i] == anyName {
			segments[i] = cluster
		}
	}
	return strings.Join(segments, "/")
}

func present(topics ...string) []string {
	return slices.DeleteFunc(topics, func(topic string) bool { return topic == "" })
}

// Routes say where events go to, and where they come from.
type Routes struct {
	// To is the topic for an event.
	To func(*cloudevents.Event) (string, error)
	// From are the topics to receive events of.
	From []string
}
