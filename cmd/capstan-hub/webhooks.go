package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/capstan-io/capstan/internal/admission/conversion"
	admissionwebhook "github.com/capstan-io/capstan/internal/admission/webhook"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/ignoredflags"
	"github.com/capstan-io/capstan/internal/logging"
	"github.com/capstan-io/capstan/internal/secureserving"
	"github.com/capstan-io/capstan/internal/servingcert"
)

type webhooksFlags struct {
	kubeconfig     string
	gates          *featuregates.Set
	accepted       ignoredflags.Flags
	tls            secureserving.TLSFlags
	admission      admissionFlags
	port           int
	certDir        string
	clientCAFile   string
	metricsAddress string
	healthAddress  string
	logs           logging.Options
}

const (
	flagCertDir      = "cert-dir"
	flagClientCAFile = "client-ca-file"
)

func newWebhooksCommand() *cobra.Command {
	flags := webhooksFlags{
		gates: featuregates.Hub(), admission: newAdmissionFlags(), port: webhook.DefaultPort,
		metricsAddress: secureserving.LocalMetrics, healthAddress: ":8000", logs: logging.New(),
	}
	command := &cobra.Command{
		Use:   "webhooks",
		Short: "Serve the hub's admission rules and conversions as webhooks of an existing Kubernetes API",
		Long: `Serve the hub's admission rules and conversions as webhooks of an existing Kubernetes API.

They are the rules that the standalone hub applies in process. The serving certificate is
read from tls.crt and tls.key, and again when these change.`,
		Example: `  capstan-hub webhooks --kubeconfig ~/.kube/config --cert-dir ./certs`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return flags.run(command.Context())
		},
	}
	flags.add(command.Flags())
	return command
}

func (f *webhooksFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig, "File with the access to the API (default: that of the pod this runs in).")
	f.gates.AddFlag(flags)
	f.admission.add(flags)
	flags.IntVar(&f.port, "port", f.port, "Port on which the webhooks are served.")
	flags.StringVar(&f.certDir, flagCertDir, f.certDir, "Folder with the serving certificate, tls.crt and tls.key.")
	flags.StringVar(&f.certDir, "certdir", f.certDir, "The same as --cert-dir.")
	flags.StringVar(&f.clientCAFile, flagClientCAFile, f.clientCAFile,
		"File with the certificate authorities of the API server's client certificate, which the webhooks of admission then require; "+
			"conversions need none, as no API server shows one for them. Empty answers every client.")
	f.tls.Add(flags)
	f.accepted.AddLimits(flags, "kube-api-qps", "kube-api-burst")
	secureserving.AddMetricsFlag(flags, &f.metricsAddress)
	flags.StringVar(&f.healthAddress, "health-probe-bind-address", f.healthAddress,
		"Address at which /healthz and /readyz are served; 0 serves none.")
	f.logs.AddFlags(flags)
}

func (f *webhooksFlags) run(ctx context.Context) error {
	if err := f.logs.Apply(ctx); err != nil {
		return err
	}
	f.gates.Log(klog.FromContext(ctx))
	f.accepted.Log(klog.FromContext(ctx))
	bounds, err := f.tls.Apply()
	if err != nil {
		return err
	}
	config, err := clientConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	options, err := f.admission.options(f.gates)
	if err != nil {
		return err
	}
	if f.certDir == "" {
		return fmt.Errorf("--%s is not set: name the folder with the serving certificate, tls.crt and tls.key", flagCertDir)
	}
	certificate, err := servingcert.Read(f.certDir)
	if err != nil {
		return fmt.Errorf("--%s: %w", flagCertDir, err)
	}
	handlers, err := admissionwebhook.Handlers(client, options)
	if err != nil {
		return err
	}
	metrics, err := secureserving.MetricsOptions(f.metricsAddress, bounds)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: metrics, HealthProbeBindAddress: f.healthAddress,
		WebhookServer: webhook.NewServer(webhook.Options{Port: f.port, TLSOpts: []func(*tls.Config){
			bounds,
			func(c *tls.Config) { c.GetCertificate, c.ClientAuth = certificate.Get, tls.RequestClientCert },
		}}),
	})
	if err != nil {
		return fmt.Errorf("prepare the webhooks: %w", err)
	}
	if err := mgr.Add(certificate); err != nil {
		return err
	}
	if err := f.requireClients(mgr, handlers); err != nil {
		return err
	}
	server := mgr.GetWebhookServer()
	for path, handler := range handlers {
		server.Register(path, handler)
	}
	server.Register(conversion.Path, conversion.Handler())
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("webhooks", server.StartedChecker()); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// requireClients has the handlers of admission answer the API server alone, as far as its certificate shows. The file is followed.
func (f *webhooksFlags) requireClients(mgr ctrl.Manager, handlers map[string]http.Handler) error {
	if f.clientCAFile == "" {
		return nil
	}
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile(flagClientCAFile, f.clientCAFile)
	if err != nil {
		return fmt.Errorf("--%s: %w", flagClientCAFile, err)
	}
	for path, handler := range handlers {
		handlers[path] = admissionwebhook.OfClients(ca.VerifyOptions, handler)
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		ca.Run(ctx, 1)
		return nil
	}))
}
