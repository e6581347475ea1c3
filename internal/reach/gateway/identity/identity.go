// Package identity decides who callers of the hub are on clusters. It is pure.
package identity

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
)

const (
	// maxRules and maxPattern bound what is matched for each request.
	maxRules   = 1000
	maxPattern = 1000

	// ofHub is the prefix of the names that service accounts of the hub have on clusters: there, the same name means another account.
	ofHub = "cluster:hub:"

	serviceAccounts      = "system:serviceaccount:"
	serviceAccountGroups = "system:serviceaccounts"
)

// Identity is a caller, on the hub or on a cluster.
type Identity struct {
	User   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Exchanger has the rules of a configuration.
type Exchanger struct{ rules []rule }

type rule struct {
	gatewayv1alpha1.ClientIdentityExchangeRule
	user, group, cluster *regexp.Regexp
}

// Parse reads a ClusterGatewayProxyConfiguration in YAML or JSON, and refuses what could not be carried out.
func Parse(text []byte) (*Exchanger, error) {
	var configuration gatewayv1alpha1.ClusterGatewayProxyConfiguration
	if err := yaml.UnmarshalStrict(text, &configuration); err != nil {
		return nil, fmt.Errorf("read the ClusterGatewayProxyConfiguration: %w", err)
	}
	if kind := configuration.Kind; kind != "" && kind != "ClusterGatewayProxyConfiguration" {
		return nil, fmt.Errorf("kind is %q; use ClusterGatewayProxyConfiguration", kind)
	}
	rules := configuration.Spec.ClientIdentityExchanger.Rules
	if len(rules) > maxRules {
		return nil, fmt.Errorf("spec.clientIdentityExchanger.rules has %d rules; at most %d are matched", len(rules), maxRules)
	}
	e := &Exchanger{}
	for i := range rules {
		compiled, err := compile(rules[i])
		if err != nil {
			return nil, fmt.Errorf("spec.clientIdentityExchanger.rules[%d] (%s): %w", i, rules[i].Name, err)
		}
		e.rules = append(e.rules, compiled)
	}
	return e, nil
}

func compile(from gatewayv1alpha1.ClientIdentityExchangeRule) (rule, error) {
	r := rule{ClientIdentityExchangeRule: from}
	if from.Source == nil || *from.Source == (gatewayv1alpha1.IdentityExchangerSource{}) {
		return r, errors.New("source matches nobody; set at least one of user, group, uid, cluster, userPattern, groupPattern, clusterPattern")
	}
	switch from.Type {
	case gatewayv1alpha1.PrivilegedIdentityExchanger:
	case gatewayv1alpha1.StaticMappingIdentityExchanger:
		if from.Target == nil || from.Target.User == "" {
			return r, errors.New("target.user is missing; set it to a user of the cluster, who may have target.groups")
		}
	default:
		return r, fmt.Errorf("type is %q; use %s or %s", from.Type, gatewayv1alpha1.PrivilegedIdentityExchanger,
			gatewayv1alpha1.StaticMappingIdentityExchanger)
	}
	for _, pattern := range []struct {
		field string
		text  *string
		to    **regexp.Regexp
	}{
		{"source.userPattern", from.Source.UserPattern, &r.user},
		{"source.groupPattern", from.Source.GroupPattern, &r.group},
		{"source.clusterPattern", from.Source.ClusterPattern, &r.cluster},
	} {
		if pattern.text == nil {
			continue
		}
		if len(*pattern.text) > maxPattern {
			return r, fmt.Errorf("%s has %d characters; at most %d are matched", pattern.field, len(*pattern.text), maxPattern)
		}
		compiled, err := regexp.Compile("^(?:" + *pattern.text + ")$")
		if err != nil {
			return r, fmt.Errorf("%s is no regular expression: %w", pattern.field, err)
		}
		*pattern.to = compiled
	}
	return r, nil
}

// OnCluster returns who a caller is on a cluster by the first rule that matches, of the first configuration that has one; nil is the
// account of the gateway itself. Whom no rule matches stays who they are.
func OnCluster(caller Identity, cluster string, configurations ...*Exchanger) *Identity {
	for _, e := range configurations {
		if e == nil {
			continue
		}
		for _, r := range e.rules {
			if r.matches(caller, cluster) {
				return r.target()
			}
		}
	}
	same := forCluster(caller)
	return &same
}

func (r rule) matches(caller Identity, cluster string) bool {
	s := r.Source
	return is(s.User, caller.User) && is(s.UID, caller.UID) && is(s.Cluster, cluster) &&
		(s.Group == nil || slices.Contains(caller.Groups, *s.Group)) &&
		(r.user == nil || r.user.MatchString(caller.User)) &&
		(r.cluster == nil || r.cluster.MatchString(cluster)) &&
		(r.group == nil || slices.ContainsFunc(caller.Groups, r.group.MatchString))
}

func is(want *string, have string) bool { return want == nil || *want == have }

func (r rule) target() *Identity {
	if r.Type == gatewayv1alpha1.PrivilegedIdentityExchanger {
		return nil
	}
	return &Identity{User: r.Target.User, UID: r.Target.UID, Groups: r.Target.Groups}
}

// forCluster keeps service accounts of the hub from being those of the cluster with the same name.
func forCluster(caller Identity) Identity {
	if !strings.HasPrefix(caller.User, serviceAccounts) {
		return caller
	}
	there := Identity{User: ofHub + caller.User, UID: caller.UID, Extra: caller.Extra}
	for _, group := range caller.Groups {
		if group == serviceAccountGroups || strings.HasPrefix(group, serviceAccountGroups+":") {
			group = ofHub + group
		}
		there.Groups = append(there.Groups, group)
	}
	return there
}
