package main

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// RU-04: however long the hub was away, it hears of the cluster again long before what it hears would be out of date.
func TestRetries(t *testing.T) {
	t.Parallel()
	limiter, wait := retries(), time.Duration(0)
	for range 30 {
		wait = limiter.When(reconcile.Request{})
	}
	if wait > validity/4 {
		t.Errorf("it waits for %v before it tries again, and scores are valid for %v", wait, validity)
	}
}
