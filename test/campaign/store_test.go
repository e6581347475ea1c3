package campaign

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// store is all that a hub stores, by resource, namespace and name, without what differs between two runs that do the same.
type store map[string]string

// reader reads stores.
type reader struct {
	client    dynamic.Interface
	resources []schema.GroupVersionResource
}

// untold are resources about which nothing is compared: events may be lost, and the others are the API server's own.
var untold = map[schema.GroupResource]bool{
	{Resource: "events"}:                                                   true,
	{Group: "events.k8s.io", Resource: "events"}:                           true,
	{Resource: "componentstatuses"}:                                        true,
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:             true,
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: true,
}

// newReader finds out what the hub serves.
func newReader(config *rest.Config) (*reader, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	found, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	r := &reader{client: client}
	for _, version := range found {
		gv, err := schema.ParseGroupVersion(version.GroupVersion)
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(gv.Group, "flowcontrol.") || strings.HasPrefix(gv.Group, "admissionregistration.") {
			continue
		}
		for _, resource := range version.APIResources {
			gvr := gv.WithResource(resource.Name)
			if slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "watch") && !untold[gvr.GroupResource()] {
				r.resources = append(r.resources, gvr)
			}
		}
	}
	return r, nil
}

// read returns what is stored, and whether a namespace is still going.
func (r *reader) read(ctx context.Context) (s store, going bool, err error) {
	s = store{}
	for _, resource := range r.resources {
		list, err := r.client.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, false, fmt.Errorf("list %s: %w", resource.Resource, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if strings.HasPrefix(o.GetNamespace(), "kube-") {
				continue // of the API server and its controllers, and not the same on another hub
			}
			going = going || resource.Resource == "namespaces" && o.GetDeletionTimestamp() != nil
			text, err := normalized(o)
			if err != nil {
				return nil, false, err
			}
			s[keyOf(resource.GroupResource(), o.GetNamespace(), o.GetName())] = text
		}
	}
	return s, going, nil
}

// keyOf is the key of an object in a store.
func keyOf(resource schema.GroupResource, namespace, name string) string {
	return strings.Join([]string{resource.String(), namespace, name}, "/")
}

var (
	uuids   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	pems    = regexp.MustCompile(`(?s)-----BEGIN .*?-----END [A-Z ]+-----`)
	scores  = regexp.MustCompile(`reason: score .*`)
	moments = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
)

// normalized is an object without uids, versions, times, and bytes that are made at random.
func normalized(o *unstructured.Unstructured) (string, error) {
	generation := o.GetGeneration()
	metadata, _ := o.Object["metadata"].(map[string]any)
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		delete(metadata, field)
	}
	if o.GetKind() == "Secret" {
		if data, ok := o.Object["data"].(map[string]any); ok {
			for key := range data {
				data[key] = "bytes"
			}
		}
	}
	if o.GetKind() == "CertificateSigningRequest" {
		for part, field := range map[string]string{"spec": "request", "status": "certificate"} {
			if has, ok := o.Object[part].(map[string]any); ok && has[field] != nil {
				has[field] = "bytes"
			}
		}
	}
	clean(o.Object, generation)
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return "", err
	}
	without := uuids.ReplaceAllString(string(text), "UID")
	without = scores.ReplaceAllString(without, "reason: score") // it tells what was selected before, and by which other placements
	return moments.ReplaceAllString(pems.ReplaceAllString(without, "PEM"), "TIME"), nil
}

// clean says of observed generations whether they are the present one, and sorts what has no order.
func clean(value any, generation int64) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if observed, ok := inner.(int64); ok && key == "observedGeneration" {
				v[key] = fmt.Sprintf("present: %t", observed == generation)
			}
			clean(inner, generation)
		}
	case []any:
		for _, inner := range v {
			clean(inner, generation)
		}
		slices.SortStableFunc(v, func(a, b any) int { return cmp.Compare(orderOf(a), orderOf(b)) })
	}
}

// orderOf is the type of a condition, who an owner is, or a finalizer.
func orderOf(value any) string {
	m, ok := value.(map[string]any)
	if !ok {
		if text, _ := value.(string); strings.Contains(text, fleet.Domain+"/") {
			return text
		}
		return ""
	}
	if _, isOwner := m["uid"]; isOwner {
		return fmt.Sprint(m["kind"], m["name"])
	}
	if _, isCondition := m["lastTransitionTime"]; isCondition {
		return fmt.Sprint(m["type"])
	}
	return ""
}

// recreated are the objects that are there in the end, and that were deleted, though a run without faults has not deleted them: somebody
// has made them again.
func recreated(end store, deleted, withoutFaults []string) (keys []string) {
	for _, key := range deleted {
		if _, there := end[key]; there && !slices.Contains(withoutFaults, key) && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// difference says what one store has that another has not; it is empty if they are equal. Those that are kept may be in the second alone.
func difference(want, have store, kept map[string]bool) string {
	var text strings.Builder
	keys := slices.AppendSeq(slices.Collect(maps.Keys(want)), maps.Keys(have))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		w, desired := want[key]
		h, there := have[key]
		switch {
		case !there:
			fmt.Fprintf(&text, "%s is missing\n", key)
		case !desired && !kept[key]:
			fmt.Fprintf(&text, "%s is there, and should not be:\n%s\n", key, h)
		case desired && w != h:
			fmt.Fprintf(&text, "%s differs (- wanted, + found):\n%s\n", key, gocmp.Diff(strings.Split(w, "\n"), strings.Split(h, "\n")))
		}
	}
	return text.String()
}
