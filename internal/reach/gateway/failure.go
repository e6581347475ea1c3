package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/reach/access"
)

const reasonBadGateway metav1.StatusReason = "BadGateway"

func status(code int32, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}
}

// failure says why there is no answer of the cluster, and what to do about it. If the request has ended with the right or the credential of
// its sender, the cause of that is the answer.
func (f *forwarding) failure(ctx context.Context, err error) *apierrors.StatusError {
	var refused *apierrors.StatusError
	if errors.As(context.Cause(ctx), &refused) {
		return refused
	}
	code, reason, message := f.to.explain(ctx, err)
	return &apierrors.StatusError{ErrStatus: status(code, reason, message)}
}

// explain is for requests and for probes.
func (c *connection) explain(ctx context.Context, err error) (code int32, reason metav1.StatusReason, message string) {
	name := c.cluster.Name
	cause := context.Cause(ctx)
	if errors.Is(cause, errSecretDeleted) || errors.Is(cause, errEndpointChanged) || errors.Is(cause, errStopping) {
		return http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, fmt.Sprintf("cluster %s: %v", name, cause)
	}
	var tunnel *tunnelError
	var certificate *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var wrongName x509.HostnameError
	var timeout net.Error
	switch {
	case errors.Is(err, errNoTunnels):
		return http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, fmt.Sprintf(
			"cluster %s is to be reached through a tunnel, but %v; start the gateway with --tunnels, or set the endpoint of its "+
				"Secret to an address that the hub can dial", name,
			errNoTunnels)
	case errors.As(err, &tunnel):
		return http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, fmt.Sprintf(
			"cluster %s cannot be reached through its tunnel: %v; see whether the add-on cluster-proxy is available on it", name, tunnel.error)
	case errors.As(err, &certificate), errors.As(err, &unknown), errors.As(err, &wrongName):
		return http.StatusBadGateway, reasonBadGateway, fmt.Sprintf(
			"what answers for cluster %s is not trusted: %v; set the key ca.crt of its Secret to the CA of the cluster", name, err)
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, metav1.StatusReasonTimeout, fmt.Sprintf(
			"the API server of cluster %s has not answered in time: %v; see whether it runs and whether the hub can reach it", name, err)
	case errors.Is(err, access.ErrRedirect):
		return http.StatusBadGateway, reasonBadGateway, fmt.Sprintf("the API server of cluster %s cannot be used: %v", name, err)
	default:
		return http.StatusBadGateway, reasonBadGateway, fmt.Sprintf(
			"the API server of cluster %s cannot be reached: %v; see whether it runs and whether its Secret has its address", name, err)
	}
}
