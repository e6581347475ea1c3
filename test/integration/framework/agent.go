package framework

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// AwaitRequests waits until a cluster has so many certificate requests.
func AwaitRequests(t *testing.T, cluster string, n int) {
	t.Helper()
	env.Eventually(t, func(context.Context) error {
		if names := Requests(t, cluster); len(names) != n {
			return fmt.Errorf("requests %v, want %d", names, n)
		}
		return nil
	})
}

// Requests are the names of the certificate requests of a cluster on the shared hub.
func Requests(t *testing.T, cluster string) (names []string) {
	t.Helper()
	return RequestsOn(t, Hub.Client(t), cluster)
}

// RequestsOn are the names of the certificate requests of a cluster on a hub.
func RequestsOn(t *testing.T, c client.Client, cluster string) (names []string) {
	t.Helper()
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := c.List(t.Context(), list, client.MatchingLabels{fleet.LabelClusterName: cluster}); err != nil {
		t.Fatal(err)
	}
	for _, csr := range list.Items {
		names = append(names, csr.Name)
	}
	return names
}

// AwaitLog waits until a process has written the text so often.
func AwaitLog(t *testing.T, p *env.Process, text string, times int) {
	t.Helper()
	env.Eventually(t, func(context.Context) error {
		if n := strings.Count(p.Log(), text); n < times {
			return fmt.Errorf("the log says %q %d times, want %d", text, n, times)
		}
		return nil
	})
}

// AwaitAnswer waits until a URL answers with the status code.
func AwaitAnswer(t *testing.T, url string, code int) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != code {
			return fmt.Errorf("%s answers %s, want %d", url, response.Status, code)
		}
		return nil
	})
}
