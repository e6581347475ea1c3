package inprocess_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// PL-16 WH-14: the name of a placement fits into the label of its decisions, unless it is there already. writeAndCheck calls the
// webhook, too.
func TestPlacementName(t *testing.T) {
	t.Parallel()
	placement := func(name, more string) *unstructured.Unstructured {
		return object(t, `{apiVersion: cluster.open-cluster-management.io/v1beta1, kind: Placement, metadata: {namespace: team-a, `+name+more+
			`}, spec: {}}`)
	}
	longest, tooLong := "name: a."+strings.Repeat("b", 61), "name: a."+strings.Repeat("b", 62)
	for name, test := range map[string]struct {
		object, old *unstructured.Unstructured
		text        string
	}{
		"the longest":                  {placement(longest, ""), nil, ""},
		"one that the server makes up": {placement("generateName: a-", ""), nil, ""},
		"too long": {placement(tooLong, ""), nil, "metadata.name: Invalid value: \"a." + strings.Repeat("b", 62) +
			"\": the label cluster.open-cluster-management.io/placement of its PlacementDecisions has to hold the name, which must be no more than 63 bytes"},
		"too long, and there already": {placement(tooLong, ", labels: {a: b}"), placement(tooLong, ""), ""},
		"too long, and let go":        {placement(tooLong, ""), placement(tooLong, ", finalizers: [a/b]"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			writeAndCheck(t, test.object, test.old, test.text)
		})
	}
}

// WH-14: a placement of any number of expressions would be compiled by the hub, again at every start. One that was stored may be changed
// otherwise.
func TestPlacementBounds(t *testing.T) {
	t.Parallel()
	placement := func(expressions int, more string) *unstructured.Unstructured {
		return object(t, `{apiVersion: cluster.open-cluster-management.io/v1beta1, kind: Placement, metadata: {namespace: team-a, name: a`+more+
			`},
			spec: {predicates: [{requiredClusterSelector: {celSelector: {celExpressions: [`+strings.Repeat(`"true", `, expressions)+`]}}}]}}`)
	}
	const tooMany = "spec.predicates: CEL expressions: there are 25000; the limit is 100"
	for name, test := range map[string]struct {
		object, old *unstructured.Unstructured
		text        string
	}{
		"as many as there may be": {placement(100, ""), nil, ""},
		"too many":                {placement(25_000, ""), nil, tooMany},
		"more than before":        {placement(25_000, ""), placement(1, ""), tooMany},
		"there already":           {placement(25_000, ", labels: {a: b}"), placement(25_000, ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			writeAndCheck(t, test.object, test.old, test.text)
		})
	}
}

// WH-16: a toleration that no taint can match is a mistake, as in a Pod. A placement that was stored with one may be changed otherwise.
func TestPlacementTolerations(t *testing.T) {
	t.Parallel()
	placement := func(toleration, more string) *unstructured.Unstructured {
		return object(t, `{apiVersion: cluster.open-cluster-management.io/v1beta1, kind: Placement, metadata: {namespace: team-a, name: a`+more+
			`}, spec: {tolerations: [{operator: Exists}, `+toleration+`]}}`)
	}
	const keyless, valued, unknown = "{operator: Equal, value: b}", "{key: a, operator: Exists, value: b}", "{key: a, operator: In}"
	for name, test := range map[string]struct {
		object, old *unstructured.Unstructured
		text        string
	}{
		"a value":                      {placement("{key: a, operator: Equal, value: b, tolerationSeconds: 5}", ""), nil, ""},
		"no value":                     {placement("{key: a, operator: Equal}", ""), nil, ""},
		"any value":                    {placement("{key: a, operator: Exists, effect: NoSelect, tolerationSeconds: 0}", ""), nil, ""},
		"a value without a key":        {placement(keyless, ""), nil, "spec.tolerations[1].operator: must be Exists, as the key is empty"},
		"a value, and any":             {placement(valued, ""), nil, `spec.tolerations[1].value: "b" must be empty, as the operator is Exists`},
		"an unknown operator":          {placement(unknown, ""), nil, `spec.tolerations[1].operator: "In" is neither Exists nor Equal`},
		"wrong from now on":            {placement(valued, ""), placement("{key: a}", ""), "spec.tolerations[1].value"},
		"there already":                {placement(valued, ", labels: {a: b}"), placement(valued, ""), ""},
		"there already, and corrected": {placement("{key: a}", ""), placement(valued, ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			writeAndCheck(t, test.object, test.old, test.text)
		})
	}
}
