package output

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// Acceptance is what a user agrees to who accepts a cluster.
type Acceptance struct {
	Cluster string `json:"cluster"`
	// Accepted reports whether the cluster is accepted now, Joined whether an agent of it joined before.
	Accepted bool `json:"accepted"`
	Joined   bool `json:"joined"`
	// RequestedBy is the user with a bootstrap credential who created the ManagedCluster.
	RequestedBy string            `json:"requestedBy,omitempty"`
	URLs        []string          `json:"urls,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Taints      []clusterv1.Taint `json:"taints,omitempty"`
	// ForeignNamespace says that the hub has a namespace of this name that was not made for the cluster.
	ForeignNamespace bool              `json:"foreignNamespace,omitempty"`
	Requests         []AgentRequest    `json:"requests,omitempty"`
	Rejected         []RejectedRequest `json:"rejectedRequests,omitempty"`
	Error            string            `json:"error,omitempty"`
}

// AgentRequest is the certificate request of an agent.
type AgentRequest struct {
	Name string `json:"name"`
	// Agent is who the agent will be on the hub, Requester is who requests that.
	Agent     string    `json:"agent"`
	Requester string    `json:"requester"`
	Created   time.Time `json:"created"`
	Approved  bool      `json:"approved"`
}

// RejectedRequest is a certificate request that is left alone.
type RejectedRequest struct {
	Name   string `json:"name"`
	Reason string `json:"why"`
}

// AcceptanceTree shows what a user is about to agree to. Whoever asks to join has written most of it.
func AcceptanceTree(a *Acceptance, now time.Time) Node {
	root := Node{Key: a.Cluster, Children: []Node{
		Leaf("RequestedBy", Plain(a.RequestedBy)),
		Leaf("URLs", Plain(strings.Join(a.URLs, ", "))),
	}}
	for _, pairs := range []struct {
		key    string
		values map[string]string
	}{{"Labels", a.Labels}, {"Annotations", a.Annotations}} {
		if len(pairs.values) > 0 {
			root.Children = append(root.Children, pairsNode(pairs.key, pairs.values))
		}
	}
	for _, taint := range a.Taints {
		root.Children = append(root.Children, Leaf("Taint", Plain(taint.Key+"="+taint.Value+":"+string(taint.Effect))))
	}
	if a.ForeignNamespace {
		root.Children = append(root.Children,
			Leaf("Namespace", Cell{Text: "exists and was not made for a cluster; the agent will read and write there", Bad: true}))
	}
	for _, request := range a.Requests {
		root.Children = append(root.Children, Node{Key: "Request", Value: Plain(request.Name), Children: []Node{
			Leaf("Agent", Plain(request.Agent)),
			Leaf("Requester", Plain(request.Requester)),
			Leaf("Age", Plain(now.Sub(request.Created).Round(time.Second).String())),
		}})
	}
	return root
}

func pairsNode(key string, values map[string]string) Node {
	node := Node{Key: key}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		node.Children = append(node.Children, Leaf(name, Plain(values[name])))
	}
	return node
}

// Printable is a text that strangers wrote, without what a terminal would act on.
func Printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.QuoteToGraphic(text)
	}
	return text
}
