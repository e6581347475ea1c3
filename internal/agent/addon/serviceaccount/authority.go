package serviceaccount

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/filewatch"
)

// certificateAuthority is what clients of the managed cluster trust. It may be in a file that is replaced.
func certificateAuthority(config *rest.Config) ([]byte, error) {
	loaded := rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(loaded); err != nil {
		return nil, fmt.Errorf("read the certificate authority of the managed cluster: %w", err)
	}
	return loaded.CAData, nil
}

// authorityFile is the file that certificateAuthority reads, if any: what the configuration itself has of it comes first, and stays.
func authorityFile(config *rest.Config) string {
	if len(config.CAData) > 0 {
		return ""
	}
	return config.CAFile
}

// watchAuthority has all accounts reconciled whenever their Secrets get another certificate authority.
func (c *Controller) watchAuthority(ctx context.Context) {
	file := authorityFile(c.Managed)
	if file == "" {
		return
	}
	changes := filewatch.New(func() []string { return []string{file} })
	go changes.Run(ctx, func() { c.enqueueAccounts(ctx) })
}

// enqueueAccounts has all accounts reconciled. While a session does not know them, they are about to be.
func (c *Controller) enqueueAccounts(ctx context.Context) {
	c.switching.RLock()
	defer c.switching.RUnlock()
	if c.session == nil || !c.session.hasSynced() {
		return
	}
	accounts := &authenticationv1beta1.ManagedServiceAccountList{}
	if err := c.session.hub.List(ctx, accounts, client.InNamespace(c.Cluster)); err != nil {
		log.FromContext(ctx).Error(err, "List the ManagedServiceAccounts, whose Secrets get another certificate authority")
		return
	}
	for i := range accounts.Items {
		c.queue.Add(c.request(accounts.Items[i].Name))
	}
}
