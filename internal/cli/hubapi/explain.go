package hubapi

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
)

// ErrNotAHub is what requests to an API server fail with that is no hub.
var ErrNotAHub = errors.New("not an Open Cluster Management hub")

// Problem is a failure of which is known what to do about it.
type Problem struct {
	Err error
	// Next is what to do.
	Next string
}

// Error says what is wrong.
func (p Problem) Error() string { return p.Err.Error() }

// Unwrap returns what is wrong.
func (p Problem) Unwrap() error { return p.Err }

// DebugServerName is what the operator makes the certificate of the debug server for.
const DebugServerName = "cluster-manager-placement." + fleet.NamespaceHub + ".svc"

// Explain turns a failed request into what a person can act on: what was being done, what is wrong, what to do next. A nil error
// stays nil, any other stays in the chain.
func (h *Hub) Explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	if errors.As(err, &errWaitEnded{}) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	problem, next := h.Diagnose(err)
	return fmt.Errorf("%s: %w\n%s", doing, problem, next)
}

// unwrapURL is an error without the URL, which is said already.
func unwrapURL(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}

// Diagnose says what is wrong with a request that failed, and what to do about it.
func (h *Hub) Diagnose(err error) (problem error, next string) { //nolint:revive,staticcheck // it returns two halves of a message
	err = unwrapURL(err)
	var certInvalid x509.CertificateInvalidError
	var unknownAuthority x509.UnknownAuthorityError
	var wrongHost x509.HostnameError
	var dns *net.DNSError
	var proxyErr *forwardproxy.Error
	var explained Problem
	switch {
	case errors.As(err, &explained):
		return err, explained.Next
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted"), "Run the command again to go on."
	case errors.As(err, &proxyErr):
		return proxyErr, fmt.Sprintf("The way to %s leads through this proxy: %s.", h.Server, h.Source.proxyHint())
	case NotServed(err):
		return fmt.Errorf("%s is %w: it does not serve %s (%w)", h.Server, ErrNotAHub, clusterv1.GroupVersion, err), h.Source.otherHubHint()
	case apierrors.IsUnauthorized(err) || strings.Contains(err.Error(), "tls: expired certificate"):
		return fmt.Errorf("%s does not accept the credentials of %s: %w%s", h.Server, h.Source, err, h.credentialExpiry()), h.Source.RenewHint()
	case strings.HasPrefix(h.Server, "http://") &&
		(apierrors.IsBadRequest(err) || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown):
		return fmt.Errorf("%s does not answer as an API server does: %w", h.Server, err), "Begin the URL with https:// if that is what it speaks."
	case apierrors.IsForbidden(err):
		return err, h.Source.forbiddenHint(err)
	case apierrors.IsNotFound(err):
		return err, h.missingHint(err)
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return err, fmt.Sprintf("Asked %s, with %s.", h.Server, h.Source)
	case errors.As(err, &certInvalid) && certInvalid.Reason == x509.Expired:
		return fmt.Errorf("the certificate of %s has expired, or the clock of this machine is wrong: %w", h.Server, err),
			"Compare the clock with the dates above. If it is right, the certificate of the hub has to be renewed: a hub of Capstan does so by itself while it runs."
	case errors.As(err, &unknownAuthority):
		return fmt.Errorf("%s shows a certificate that %s does not trust: %w", h.Server, h.Source.caSource(), err),
			h.Source.trustHint()
	case errors.As(err, &wrongHost):
		return fmt.Errorf("the certificate of %s is for another host: %w", h.Server, err),
			h.Source.hostHint()
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing answers at %s: %w", h.Server, err), h.Source.unreachableHint()
	case errors.As(err, &dns):
		return fmt.Errorf("the host of %s is not known: %w", h.Server, err), fmt.Sprintf("Check the server of %s and the network.", h.Source)
	case errors.Is(err, context.DeadlineExceeded) || IsTimeout(err):
		return fmt.Errorf("%s did not answer in time: %w", h.Server, err),
			"Check that it can be reached from this machine (network, proxy, firewall), or wait longer with --timeout."
	default:
		return err, fmt.Sprintf("Asked %s, with %s.", h.Server, h.Source)
	}
}

// proxyHint says who names the proxy.
func (s Source) proxyHint() string {
	if s.Invitation {
		return "check --proxy-url"
	}
	return fmt.Sprintf("check proxy-url in %s", s)
}

func (s Source) otherHubHint() string {
	if s.Invitation {
		return "Check --hub-apiserver: \"capstan get token\" on the hub prints it."
	}
	return fmt.Sprintf("That is where %s leads: choose the context of a hub with --context, or start a hub on this machine with \"capstan up\".", s)
}

// credentialExpiry says when the client certificate expired, if it did.
func (h *Hub) credentialExpiry() string {
	certificates, err := certutil.ParseCertsPEM(h.clientCertificate)
	if err != nil || time.Now().Before(certificates[0].NotAfter) {
		return ""
	}
	return " (the client certificate expired on " + certificates[0].NotAfter.UTC().Format(time.RFC1123) + ")"
}

// RenewHint says how to get credentials that are accepted.
func (s Source) RenewHint() string {
	switch {
	case s.Invitation:
		return "The token may have expired or been revoked: ask for a new one with \"capstan get token\" on the hub."
	case s.Playground:
		return "Run \"capstan up\": it writes a fresh kubeconfig."
	case s.Pod:
		return "See whether the service account of the pod still exists, or name a kubeconfig with --kubeconfig."
	}
	return fmt.Sprintf("They may have expired or been revoked: log in again, or get a fresh kubeconfig from an administrator of the %s.", s.noun())
}

// noun is what the server is, for messages.
func (s Source) noun() string {
	if s.Cluster {
		return "cluster"
	}
	return "hub"
}

// missingHint says how to see what is there instead.
func (h *Hub) missingHint(err error) string {
	list := map[string]string{
		"managedclusters":         "capstan get clusters",
		"managedclustersets":      "capstan get clustersets",
		"manifestworks":           "capstan get works",
		"placements":              "capstan get placements",
		"managedclusteraddons":    "capstan get addon",
		"clustermanagementaddons": "capstan get addon",
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		if command := list[status.Status().Details.Kind]; command != "" {
			return fmt.Sprintf("Asked %s, with %s. %q lists those there are.", h.Server, h.Source, command)
		}
	}
	return fmt.Sprintf("Asked %s, with %s.", h.Server, h.Source)
}

func (s Source) unreachableHint() string {
	switch {
	case s.DebugServer:
		return "See whether the placement controllers run, and whether \"kubectl port-forward\" still leads to their port 9443."
	case s.Invitation:
		return "See whether the hub runs, and check --hub-apiserver: \"capstan get token\" on the hub prints the URL under which it can be reached."
	case s.Playground:
		return "This is the playground's hub: \"capstan status\" shows how it is, \"capstan up\" starts it."
	}
	return fmt.Sprintf("Start the %s, or choose another with --context.", s.noun())
}

func (s Source) hostHint() string {
	if s.DebugServer {
		return "Say which of its names to expect with --debug-server-name: that of a hub that the operator has installed is " + DebugServerName + "."
	}
	if s.Cluster {
		return "Use a host name the certificate is for."
	}
	return "Use a host name the certificate is for, or set apiserver.externalHostname in the hub's configuration."
}

// caSource is what the certificate of the server is verified with.
func (s Source) caSource() string {
	if s.DebugServer {
		return "--debug-server-ca"
	}
	return s.String()
}

func (s Source) trustHint() string {
	cause := fmt.Sprintf("Another %s may have taken this address, or its CA was replaced: ", s.noun())
	switch {
	case s.DebugServer:
		return "Name a file with the certificate, or with the certificate authority that signed it: --debug-server-ca FILE. " +
			"The placement controllers show the one in the folder of their --placement-debug-cert-dir; on a hub that the operator has installed, ConfigMap " +
			fleet.NamespaceHub + "/" + fleet.ConfigMapCABundle + " has the authority."
	case s.Invitation:
		return cause + "run \"capstan get token\" on the hub again, and check --ca-file if you named one."
	case s.Playground:
		return cause + "run \"capstan up\", which writes a fresh kubeconfig."
	}
	return fmt.Sprintf("%sget a fresh kubeconfig from the %s.", cause, s.noun())
}

// NotServed distinguishes a kind that the server does not serve from an object that is not there: it has no words for the former.
func NotServed(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err)
}

// IsTimeout reports whether something took longer than it may.
func IsTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
