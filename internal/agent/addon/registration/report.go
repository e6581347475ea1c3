package registration

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// report gathers the states of the Secrets of an add-on.
type report struct {
	next  time.Time
	now   time.Time
	kinds map[string]*kind
}

// kind is what the registrations of one kind, by certificate or by token, have in common: a condition.
type kind struct {
	used   bool
	first  *secretState // the one that ends first
	lack   string       // why there is no valid credential in one of the Secrets, while one is requested
	failed string       // and what it is about
	err    error
	expiry time.Time
}

func newReport(now time.Time) *report {
	return &report{now: now, next: now.Add(resync), kinds: map[string]*kind{
		fleet.ConditionCertificateRotated: {}, fleet.ConditionTokenRefreshed: {},
	}}
}

func (r *report) add(w *desiredSecret, o secretState) {
	r.requeueBy(o.due)
	k := r.kinds[fleet.ConditionCertificateRotated]
	if w.request == nil {
		k = r.kinds[fleet.ConditionTokenRefreshed]
	}
	k.used = true
	switch {
	case o.err != nil:
		k.err, k.failed, k.expiry = o.err, w.secret.String(), o.notAfter
	case o.lack != "":
		k.lack = fmt.Sprintf("Secret %s is of no use, and another credential was asked for: %s", w.secret, o.lack)
	case !o.notAfter.IsZero() && (k.first == nil || o.notAfter.Before(k.first.notAfter)):
		k.first = &o
	}
}

// requeueBy has the add-on reconciled no later than then; zero is never.
func (r *report) requeueBy(then time.Time) {
	if !then.IsZero() && then.Before(r.next) {
		r.next = then
	}
}

// reportsCertificate reports whether there is anything to report on a certificate.
func (r *report) reportsCertificate() bool {
	k := r.kinds[fleet.ConditionCertificateRotated]
	return k.err != nil || k.first != nil
}

// write sets the conditions, and takes those away that are about no registration any more. While the hub has not decided on the first
// request, nothing is reported; a condition that was True becomes False when there is no valid credential any more.
func (r *report) write(conditions *[]metav1.Condition) {
	for _, name := range []string{fleet.ConditionCertificateRotated, fleet.ConditionTokenRefreshed} { // always in this order
		switch k := r.kinds[name]; {
		case !k.used:
			meta.RemoveStatusCondition(conditions, name)
		case k.err != nil:
			meta.SetStatusCondition(conditions, r.at(failure(name, k)))
		case k.lack != "":
			if meta.IsStatusConditionTrue(*conditions, name) {
				meta.SetStatusCondition(conditions, r.at(notRefreshed(name, k.lack)))
			}
		case k.first != nil:
			meta.SetStatusCondition(conditions, r.at(success(name, k.first)))
		}
	}
}

func (r *report) at(cond metav1.Condition) metav1.Condition {
	cond.LastTransitionTime = metav1.NewTime(r.now)
	return cond
}

func success(name string, o *secretState) metav1.Condition {
	if name == fleet.ConditionCertificateRotated {
		return clientcert.Updated(o.notBefore, o.notAfter)
	}
	return metav1.Condition{
		Type: name, Status: metav1.ConditionTrue, Reason: fleet.ReasonAddOnTokenRefreshed,
		Message: fmt.Sprintf("The token is valid from %s to %s", o.notBefore.Format(time.RFC3339), o.notAfter.Format(time.RFC3339)),
	}
}

func notRefreshed(name, message string) metav1.Condition {
	cond := metav1.Condition{Type: name, Status: metav1.ConditionFalse, Reason: fleet.ReasonClientCertificateUpdateFailed, Message: message}
	if name == fleet.ConditionTokenRefreshed {
		cond.Reason = fleet.ReasonTokenCreationFailed
	}
	return cond
}

func failure(name string, k *kind) metav1.Condition {
	until := ""
	if !k.expiry.IsZero() {
		until = fmt.Sprintf(", which holds a credential until %s,", k.expiry.UTC().Format(time.RFC3339))
	}
	return notRefreshed(name, fmt.Sprintf("Secret %s%s could not be brought up to date: %v", k.failed, until, k.err))
}
