package framework

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/test/env"
)

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
