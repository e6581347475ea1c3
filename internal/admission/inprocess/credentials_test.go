package inprocess_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/user"
)

const notBefore = "capstan.io/credentials-not-before"

// bindingServer is a standalone hub that the user writes to.
func bindingServer(who *user.DefaultInfo) *server {
	s := newServer("create join", "update accept")
	s.who = who
	s.options.DefaultClusterSet, s.options.BindCredentials = false, true
	return s
}

// Certificates hold for the ManagedCluster that they were issued for: the hub writes down since when when a user creates it, or cuts it
// off, and an administrator who restores it says so.
func TestCredentialsAreBoundToTheCluster(t *testing.T) {
	t.Parallel()
	const created, cutOff, earlier = "2026-11-21T04:30:00Z", "2026-11-21T04:30:01Z", "2026-01-01T00:00:00Z"
	with := func(value, more string) string {
		return "metadata: {name: c1, annotations: {" + notBefore + ": " + value + "}" + more
	}
	const label = ", labels: {capstan.io/cut-off: 'true'}}"
	for _, test := range []struct {
		name, cluster, old string
		who                *user.DefaultInfo
		want               string
	}{
		{name: "an administrator creates it", cluster: "metadata: {name: c1}", want: created},
		{name: "a joiner creates it", cluster: "metadata: {name: c1}", who: newcomers["bootstrap token"], want: created},
		{name: "an administrator restores it", cluster: with(earlier, "}"), want: earlier},
		{name: "one that was cut off is restored", cluster: with(earlier, label), want: earlier},
		{name: "it is labelled", cluster: with(earlier, ", labels: {a: b}}"), old: with(earlier, "}"), want: earlier},
		{name: "it was there before", cluster: "metadata: {name: c1, labels: {a: b}}", old: "metadata: {name: c1}", want: ""},
		{name: "it is denied", cluster: with(earlier, "}"), old: with(earlier, "}, spec: {hubAcceptsClient: true}"), want: earlier},
		{name: "it is cut off", cluster: with(earlier, label), old: with(earlier, "}, spec: {hubAcceptsClient: true}"), want: cutOff},
		{name: "one that was there before is cut off", cluster: "metadata: {name: c1" + label, old: "metadata: {name: c1}", want: cutOff},
		{name: "it stays cut off", cluster: with(earlier, label), old: with(earlier, label), want: earlier},
		{name: "it is cut off, and nobody wrote down when", cluster: "metadata: {name: c1" + label, old: "metadata: {name: c1" + label,
			want: cutOff},
		{name: "it is accepted again", cluster: with(earlier, label+", spec: {hubAcceptsClient: true}"), old: with(earlier, label),
			want: earlier},
		{name: "an administrator changes it", cluster: with(earlier, "}"), old: with(created, "}"), want: earlier},
		{name: "an administrator takes it back", cluster: "metadata: {name: c1}", old: with(created, "}"), want: ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var old *unstructured.Unstructured
			if test.old != "" {
				old = cluster(t, test.old)
			}
			now := cluster(t, test.cluster)
			checkStatus(t, bindingServer(test.who).write(t, now, old, ""), 0, "")
			if got := now.GetAnnotations()[notBefore]; got != test.want {
				t.Errorf("certificates hold from %q on, want %q", got, test.want)
			}
		})
	}
}

// A hub that cannot refuse certificates does not say that it does.
func TestCredentialsOfAnExistingCluster(t *testing.T) {
	t.Parallel()
	s := bindingServer(nil)
	s.options.BindCredentials = false
	created := cluster(t, "metadata: {name: c1}")
	checkStatus(t, s.write(t, created, nil, ""), 0, "")
	if len(created.GetAnnotations()) > 0 {
		t.Errorf("it says %v", created.GetAnnotations())
	}
}

// From when on certificates hold is for administrators to say, and has to be a time that has come: with another, no agent would be let in.
func TestCredentialsNotBeforeIsRefused(t *testing.T) {
	t.Parallel()
	const where = "metadata.annotations[capstan.io/credentials-not-before]"
	addOn := &user.DefaultInfo{Name: "x", Groups: []string{"system:open-cluster-management:cluster:c2:addon:a"}}
	for _, test := range []struct {
		name, value string
		who         *user.DefaultInfo
		code        int32
		text        string
	}{
		{"no time", "yesterday", nil, 400, `"yesterday" is no time: write one such as 2026-`},
		{"yet to come", "2026-11-21T04:30:01Z", nil, 400,
			"it is yet to come, and no certificate would hold until then: write 2026-11-21T04:30:00Z or earlier"},
		{"an agent", "2026-01-01T00:00:00Z", agentOfC1, 403, "agents cannot set " + where},
		{"an agent that takes it back", "", agentOfC1, 403, "agents cannot set " + where},
		{"an add-on", "2026-01-01T00:00:00Z", addOn, 403, "agents cannot set " + where},
		{"an add-on with a token", "2026-01-01T00:00:00Z", &user.DefaultInfo{Name: "system:serviceaccount:c1:a-agent"}, 403,
			"agents cannot set " + where},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			says := func(value string) *unstructured.Unstructured {
				c := cluster(t, "metadata: {name: c1}, spec: {hubAcceptsClient: true}")
				c.SetAnnotations(map[string]string{notBefore: value})
				return c
			}
			checkStatus(t, bindingServer(test.who).write(t, says(test.value), says("2026-11-21T04:00:00Z"), ""), test.code, test.text)
			if test.value != "" {
				checkStatus(t, bindingServer(test.who).write(t, says(test.value), nil, ""), test.code, test.text)
			}
		})
	}
	for credential, who := range newcomers {
		joins := cluster(t, "metadata: {name: c1, annotations: {"+notBefore+": '2026-01-01T00:00:00Z'}}")
		checkStatus(t, bindingServer(who).write(t, joins, nil, ""), 403, "has a bootstrap credential and cannot set "+where)
		if t.Failed() {
			t.Log(credential)
		}
	}
}
