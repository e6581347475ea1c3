package fleet

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// CheckAgentRequest returns what a certificate request has other than to be an agent of the cluster. The certificate has all that is
// requested: the UID of another user, say, or a URI that another service takes for an identity.
func CheckAgentRequest(request *x509.CertificateRequest, cluster string) error {
	subject := request.Subject
	owner, _, err := ParseClusterUser(subject.CommonName)
	if err != nil {
		return err
	}
	if owner != cluster {
		return fmt.Errorf("it asks for an identity of cluster %q", owner)
	}
	for _, group := range subject.Organization {
		if !slices.Contains(ClusterGroups(cluster), group) {
			return fmt.Errorf("it asks for the group %q", group)
		}
	}
	if !slices.Contains(subject.Organization, ClusterGroup(cluster)) {
		return fmt.Errorf("it does not ask for the group %q", ClusterGroup(cluster))
	}
	if len(subject.Names) != 1+len(subject.Organization) {
		return errors.New("it asks for attributes of other kinds than a user and groups")
	}
	if n := len(request.DNSNames) + len(request.EmailAddresses) + len(request.IPAddresses) + len(request.URIs); n > 0 {
		return fmt.Errorf("it asks for %d names of other kinds than a user and groups", n)
	}
	return nil
}
