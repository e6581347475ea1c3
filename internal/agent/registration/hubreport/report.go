// Package hubreport reports to the operator that has installed the agent while the agent does not reach its hub: only the agent knows, as
// the operator's own requests take another route through the network.
package hubreport

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	// writeTimeout is how long the cluster may take to store the report: heartbeats wait for it.
	writeTimeout = 5 * time.Second
	// rewriteAfter is how long a message stays before another one takes its place: some differ with every attempt.
	rewriteAfter = time.Minute
	// longestMessage, in bytes, keeps a condition readable.
	longestMessage = 1024
)

// Report is the ConfigMap with the error of the agent's last attempt to reach the hub. There is none while the agent reaches it. A nil
// Report is that of an agent without an operator, and does nothing.
type Report struct {
	maps  corev1client.ConfigMapInterface
	clock clock.PassiveClock

	mu      sync.Mutex
	message string    // empty if the hub is reached
	since   time.Time // of the first attempt that failed; zero if the hub is reached
	written time.Time // zero while the cluster does not have what is above
}

// New returns a Report in the namespace of the ConfigMaps, that of the agent.
func New(maps corev1client.ConfigMapInterface, clk clock.PassiveClock) *Report {
	return &Report{maps: maps, clock: clk}
}

// Attempted takes the result of a request to the hub, and writes the report if it changes. That it cannot be written is logged.
func (r *Report) Attempted(ctx context.Context, err error) {
	if r == nil || ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, message := r.clock.Now(), ""
	if !answered(err) {
		message = shortened(err.Error())
	}
	isWritten := !r.written.IsZero()
	if isWritten && (message == r.message || message != "" && r.message != "" && now.Sub(r.written) < rewriteAfter) {
		return
	}
	switch {
	case message == "":
		r.since = time.Time{}
	case r.since.IsZero():
		r.since = now
	}
	r.message, r.written = message, time.Time{}
	if err := r.write(ctx); err != nil {
		log.FromContext(ctx).Error(err, "The operator is not told whether the agent reaches the hub; that is tried again")
		return
	}
	r.written = now
}

// answered reports whether the hub answered as one that knows the agent. One that refuses a request is reached; which rights are missing is
// reported elsewhere.
func answered(err error) bool {
	if err == nil {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsUnexpectedServerError(err) { // or it was a proxy that answered
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusUnauthorized &&
		code != http.StatusTooManyRequests
}

func shortened(message string) string {
	if len(message) <= longestMessage {
		return message
	}
	return strings.ToValidUTF8(message[:longestMessage], "") + "…"
}

// write stores the report. One that has no room, or that the agent may not write, is left out: the agent works without it.
func (r *Report) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := r.put(ctx)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		log.FromContext(ctx).V(1).Info("No operator is told whether the agent reaches the hub", "reason", err.Error())
		return nil
	}
	return err
}

func (r *Report) put(ctx context.Context) error {
	if r.message == "" {
		err := r.maps.Delete(ctx, fleet.ConfigMapHubConnection, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	report := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fleet.ConfigMapHubConnection}, Data: map[string]string{
		fleet.KeyHubConnectionSince: r.since.UTC().Format(time.RFC3339), fleet.KeyHubConnectionMessage: r.message}}
	_, err := r.maps.Update(ctx, report, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = r.maps.Create(ctx, report, metav1.CreateOptions{})
	}
	return err
}
