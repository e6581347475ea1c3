package main

import (
	"testing"

	"github.com/capstan-io/capstan/internal/hub"
)

// Processes that run the same controllers have the same Lease, those that run others have others.
func TestLeaseOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		groups []string
		want   string
	}{
		{nil, "capstan-hub-controllers"},
		{hub.Groups(), "capstan-hub-controllers"},
		{[]string{"work"}, "capstan-hub-controllers-work"},
		{[]string{"work", "placement"}, "capstan-hub-controllers-placement-work"},
		{[]string{"placement", "work"}, "capstan-hub-controllers-placement-work"},
	} {
		if got := leaseOf(test.groups); got != test.want {
			t.Errorf("the Lease of %v is %s, want %s", test.groups, got, test.want)
		}
	}
}
