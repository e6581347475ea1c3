package appliedmanifestwork

import (
	"slices"
	"strings"
	"testing"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// An AppliedManifestWork lists resources by group, version, resource, namespace and name.
func TestSorted(t *testing.T) {
	t.Parallel()
	resource := func(group, name, object string) workv1.AppliedManifestResourceMeta {
		return workv1.AppliedManifestResourceMeta{Version: "v1", UID: object,
			ResourceIdentifier: workv1.ResourceIdentifier{Group: group, Resource: name, Namespace: "default", Name: object}}
	}
	want := []workv1.AppliedManifestResourceMeta{
		resource("", "configmaps", "a"), resource("", "configmaps", "b"), resource("", "configmaps", "a"), resource("", "pods", "a"),
		resource("", "configmaps", "a"),
		resource("apps", "deployments", "a"),
	}
	want[2].Namespace, want[4].Version = "last", "v2"
	got := slices.Clone(want)
	slices.Reverse(got)
	if got = Sorted(got); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// WK-03: events about objects lead to the work, whose name may have been shortened in that of the AppliedManifestWork.
func TestNames(t *testing.T) {
	t.Parallel()
	names := &Names{HubHash: fleet.HubHash("https://hub.example.com:6443")}
	for _, want := range []string{"web", strings.Repeat("a", 188), strings.Repeat("a", 189), strings.Repeat("a", 253)} {
		if work, ours := names.WorkOf(names.Of(want)); work != want || !ours {
			t.Errorf("%s stands for %q, %t, and not for %q", names.Of(want), work, ours, want)
		}
	}
	if work, ours := names.WorkOf("other-web"); ours {
		t.Errorf("one of another hub is that of %q", work)
	}
}
