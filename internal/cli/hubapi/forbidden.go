package hubapi

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// refusal is why an API server answers that something is forbidden.
type refusal int

const (
	refusedByRights refusal = iota
	refusedInTerminating
	refusedForCluster
	refusedByQuota
	refusedByPodSecurity
	refusedByWebhook
	refusedByPolicy
	// refusedOtherwise is for what admission in the server refuses, and for missing rights that are reported in other words.
	refusedOtherwise
)

var (
	// aboutUser is what the authorizer and admission say about a user whose rights do not suffice.
	aboutUser = regexp.MustCompile(`(?i)\buser "[^"]*".* (cannot|may not|is attempting to grant) |\bmay not\b`)
	webhook   = regexp.MustCompile(`admission webhook "([^"]+)" denied the request`)
	policy    = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)'`)
)

// refusalOf is why a forbidden request was refused, and the name of the webhook or policy that did.
func refusalOf(err error) (cause refusal, by string) {
	message := err.Error()
	has := func(texts ...string) bool {
		for _, text := range texts {
			if strings.Contains(message, text) {
				return true
			}
		}
		return false
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause),
		has("because it is being terminated", "of the cluster is being deleted"):
		return refusedInTerminating, ""
	case apierrors.HasStatusCause(err, fleet.CauseClusterTakesNoWorks):
		return refusedForCluster, ""
	case has("exceeded quota: ", "failed quota: ", "status unknown for quota: "):
		return refusedByQuota, ""
	case aboutUser.MatchString(message):
		return refusedByRights, ""
	case has("violates PodSecurity "):
		return refusedByPodSecurity, ""
	}
	if found := webhook.FindStringSubmatch(message); found != nil {
		return refusedByWebhook, found[1]
	}
	if found := policy.FindStringSubmatch(message); found != nil {
		return refusedByPolicy, found[1]
	}
	return refusedOtherwise, ""
}

// MayLackRight reports whether a request was refused because of the rights of the user, as far as the response says.
func MayLackRight(err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	cause, _ := refusalOf(err)
	return cause == refusedByRights || cause == refusedOtherwise
}

// forbiddenHint says what to do about a request that was refused. Most often a right is missing, but not always.
func (s Source) forbiddenHint(err error) string {
	cause, by := refusalOf(err)
	advice := fmt.Sprintf("ask an administrator of the %s for it, or use another context with --context.", s.noun())
	switch cause {
	case refusedInTerminating:
		return "No right is missing: the namespace is being deleted, and nothing can be created there. Run the command again when it is gone; " +
			"\"kubectl get namespace " + namespaceOf(err) + " -o yaml\" shows what it waits for."
	case refusedForCluster:
		return "No right is missing: it is about the state of the cluster, which \"capstan get clusters\" shows."
	case refusedByQuota:
		return "No right is missing: a ResourceQuota of the namespace is used up, which \"kubectl describe resourcequotas\" shows. " +
			"Have it raised, ask for less, or delete something."
	case refusedByPodSecurity:
		return "No right is missing: the Pod Security Standard of the namespace does not allow such pods. Change them as it says, or the labels " +
			"pod-security.kubernetes.io of the namespace."
	case refusedByWebhook:
		return fmt.Sprintf("No right is missing: the admission webhook %s refuses it, by rules of its own. Change what it says, or ask whoever "+
			"runs it.", by)
	case refusedByPolicy:
		return fmt.Sprintf("No right is missing: the ValidatingAdmissionPolicy %s refuses it. Change what it says, or ask whoever has made "+
			"the policy.", by)
	case refusedByRights:
		return fmt.Sprintf("The user of %s lacks this permission: %s", s, advice)
	case refusedOtherwise:
	}
	return fmt.Sprintf("The %s refuses it for the reason above. If it is that the user of %s lacks a permission, %s", s.noun(), s,
		advice)
}

// terminating finds the namespace in what an API server says of one that is being deleted.
var terminating = regexp.MustCompile(`(?:in namespace |the namespace )"?([a-z0-9-]+)"?`)

// namespaceOf is the namespace that a request was refused for, as far as the response says.
func namespaceOf(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if found := terminating.FindStringSubmatch(status.Status().Message); found != nil {
			return found[1]
		}
	}
	return "NAME"
}
