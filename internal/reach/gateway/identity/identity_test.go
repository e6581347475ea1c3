package identity_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-io/capstan/internal/reach/gateway/identity"
)

const rules = `
apiVersion: cluster.core.oam.dev/v1alpha1
kind: ClusterGatewayProxyConfiguration
spec:
  clientIdentityExchanger:
    rules:
    - {name: root, type: PrivilegedIdentityExchanger, source: {group: sudoers, cluster: c1}}
    - {name: one, type: StaticMappingIdentityExchanger, source: {user: alice}, target: {user: alicia, groups: [ops], uid: "7"}}
    - {name: number, type: StaticMappingIdentityExchanger, source: {uid: "42"}, target: {user: fortytwo}}
    - {name: testers, type: StaticMappingIdentityExchanger, source: {groupPattern: "test-.*", clusterPattern: "dev-[0-9]+"}, target: {user: tester}}
    - {name: bots, type: StaticMappingIdentityExchanger, source: {userPattern: "bot-[a-z]+"}, target: {user: robot}}
`

func TestOnCluster(t *testing.T) { // CG-04
	exchanger := parse(t, rules)
	own := parse(t, `{"spec": {"clientIdentityExchanger": {"rules": [
		{"name": "own", "type": "StaticMappingIdentityExchanger", "source": {"user": "alice"}, "target": {"user": "of-secret"}}]}}}`)
	privileged := (*identity.Identity)(nil)
	as := func(user string, groups ...string) identity.Identity {
		return identity.Identity{User: user, Groups: groups}
	}
	for _, test := range []struct {
		name    string
		caller  identity.Identity
		cluster string
		first   *identity.Exchanger
		want    *identity.Identity
	}{
		{"a group on a cluster", as("bob", "x", "sudoers"), "c1", nil, privileged},
		{"all of a source has to match", as("bob", "sudoers"), "c2", nil, &identity.Identity{User: "bob", Groups: []string{"sudoers"}}},
		{"a user", as("alice", "y"), "c2", nil, &identity.Identity{User: "alicia", Groups: []string{"ops"}, UID: "7"}},
		{"the first rule counts", as("alice", "sudoers"), "c1", nil, privileged},
		{"a UID", identity.Identity{User: "zoe", UID: "42"}, "c2", nil, &identity.Identity{User: "fortytwo"}},
		{"patterns of group and cluster", as("bob", "test-a"), "dev-1", nil, &identity.Identity{User: "tester"}},
		{"a pattern is for all of a name", as("bob", "test-a"), "dev-1x", nil, &identity.Identity{User: "bob", Groups: []string{"test-a"}}},
		{"a pattern of a user", as("bot-a"), "c2", nil, &identity.Identity{User: "robot"}},
		{"nor does it match the end of a name", as("robot-a"), "c2", nil, &identity.Identity{User: "robot-a"}},
		{"the rules of the cluster go first", as("alice", "sudoers"), "c1", own, &identity.Identity{User: "of-secret"}},
		{"then the others", as("bot-a"), "c1", own, &identity.Identity{User: "robot"}},
		{"who is matched by none stays the same", identity.Identity{User: "eve", UID: "1", Groups: []string{"g"},
			Extra: map[string][]string{"k": {"v"}}}, "c1", nil,
			&identity.Identity{User: "eve", UID: "1", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}},
		{"a service account of the hub is none of the cluster",
			as("system:serviceaccount:a:b", "system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"), "c1", nil,
			&identity.Identity{User: "cluster:hub:system:serviceaccount:a:b",
				Groups: []string{"cluster:hub:system:serviceaccounts", "cluster:hub:system:serviceaccounts:a", "system:authenticated"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, identity.OnCluster(test.caller, test.cluster, test.first, exchanger)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) { // CG-04
	for _, test := range []struct{ rule, want string }{
		{`{name: r, type: PrivilegedIdentityExchanger}`, "rules[0] (r): source matches nobody"},
		{`{name: r, type: PrivilegedIdentityExchanger, source: {}}`, "source matches nobody"},
		{`{name: r, type: ExternalIdentityExchanger, source: {user: a}}`, `type is "ExternalIdentityExchanger"; use Privileged`},
		{`{name: r, type: StaticMappingIdentityExchanger, source: {user: a}}`, "target.user is missing"},
		{`{name: r, type: PrivilegedIdentityExchanger, source: {userPattern: "("}}`, "source.userPattern is no regular expression"},
		{`{name: r, type: PrivilegedIdentityExchanger, source: {userPattern: ` + strings.Repeat("a", 1001) + `}}`, "has 1001 characters"},
		{`{name: r, type: PrivilegedIdentityExchanger, source: {usr: a}}`, `unknown field "usr"`},
	} {
		_, err := identity.Parse(fmt.Appendf(nil, "spec: {clientIdentityExchanger: {rules: [%s]}}", test.rule))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s\ngot %v\nwant %s", test.rule, err, test.want)
		}
	}
	if _, err := identity.Parse([]byte("kind: Secret")); err == nil {
		t.Error("took a Secret for a configuration")
	}
}

func parse(t *testing.T, text string) *identity.Exchanger {
	t.Helper()
	e, err := identity.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return e
}
