// Package apiserverconfig is what the API servers of hubs and sandboxes are configured with alike: certificates that follow their files,
// and the version of Kubernetes that they report. What an API server does by itself to follow files takes an inotify instance for each
// certificate, of the few that a user has; here all of them share the one of this process.
package apiserverconfig

import (
	"context"
	"fmt"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"

	"github.com/capstan-io/capstan/internal/machinery/filewatch"
)

// CABundle is the CAs to trust in a file. It follows the file while it runs.
type CABundle struct {
	dynamiccertificates.CAContentProvider
	follower
}

// NewCABundle reads the file.
func NewCABundle(purpose, file string) (*CABundle, error) {
	content, err := dynamiccertificates.NewDynamicCAContentFromFile(purpose, file)
	if err != nil {
		return nil, err
	}
	return &CABundle{content, follower{content, []string{file}}}, nil
}

// Files are those that an API server was configured with.
type Files struct{ ServingCert, ServingKey, RequestHeaderCA string }

// Follow has an API server follow its files. The client CA comes from a provider that follows its own.
func Follow(server *genericapiserver.Config, published *clusterauthenticationtrust.ClusterAuthenticationInfo,
	clientCA dynamiccertificates.CAContentProvider, files Files) error {
	serving := server.SecureServing
	cert, ok := serving.Cert.(dynamiccertificates.ControllerRunner)
	if !ok {
		return fmt.Errorf("the serving certificate is a %T, which does not follow a file", serving.Cert)
	}
	serving.Cert = certificate{serving.Cert, follower{cert, []string{files.ServingCert, files.ServingKey}}}
	// The authenticator holds this very one, so that is the one to keep up to date.
	headers := server.Authentication.RequestHeaderConfig
	bundle, ok := headers.CAContentProvider.(dynamiccertificates.ControllerRunner)
	if !ok {
		return fmt.Errorf("the CA of request headers is a %T, which does not follow a file", headers.CAContentProvider)
	}
	headers.CAContentProvider = &CABundle{headers.CAContentProvider, follower{bundle, []string{files.RequestHeaderCA}}}
	serving.ClientCA = dynamiccertificates.NewUnionCAContentProvider(clientCA, headers.CAContentProvider)
	published.ClientCA, published.RequestHeaderCA = clientCA, headers.CAContentProvider
	return nil
}

// follower reads files when they change. It implements dynamiccertificates.ControllerRunner.
type follower struct {
	content dynamiccertificates.ControllerRunner
	files   []string
}

// RunOnce reads them now.
func (f follower) RunOnce(ctx context.Context) error { return f.content.RunOnce(ctx) }

// Run reads them after each change. What makes no sense leaves what there was before.
func (f follower) Run(ctx context.Context, _ int) {
	changes := filewatch.New(func() []string { return f.files })
	read := func() {
		if err := f.content.RunOnce(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Certificates cannot be used; those from before stay in use", "files", f.files)
		}
	}
	read() // what was written before the watch
	changes.Run(ctx, read)
}

type certificate struct {
	dynamiccertificates.CertKeyContentProvider
	follower
}
