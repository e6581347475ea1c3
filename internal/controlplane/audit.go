package controlplane

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	genericoptions "k8s.io/apiserver/pkg/server/options"
)

// auditPolicy is what is written to the audit log where the administrator gives no policy.
//
//go:embed audit-policy.yaml
var auditPolicy []byte

// auditPolicyFile has auditPolicy, in the data directory.
const auditPolicyFile = "audit-policy.yaml"

// Of audit logs that are full, so many stay, for so many days. The size is in megabytes.
const (
	auditLogSize    = 100
	auditLogBackups = 10
	auditLogDays    = 30
)

func newAuditOptions() *genericoptions.AuditOptions {
	audit := genericoptions.NewAuditOptions()
	audit.LogOptions.MaxSize, audit.LogOptions.MaxBackups, audit.LogOptions.MaxAge = auditLogSize, auditLogBackups, auditLogDays
	return audit
}

// addAuditFlags adds those of the flags of the Kubernetes API server that a hub has a use for.
func (o *Options) addAuditFlags(flags *pflag.FlagSet) {
	log := &o.audit.LogOptions
	flags.StringVar(&log.Path, "audit-log-path", log.Path,
		"File to which requests to the API are written, as --audit-policy-file says; - is the standard output. Empty writes none.")
	flags.StringVar(&o.audit.PolicyFile, "audit-policy-file", o.audit.PolicyFile,
		"File with a Policy of audit.k8s.io/v1 (default: what users change, their requests into clusters, and what they read of Secrets, "+
			"without contents of Secrets and tokens; nothing of heartbeats, of what agents read and report, and of the hub itself; it is in "+auditPolicyFile+" of the data directory).")
	flags.IntVar(&log.MaxSize, "audit-log-maxsize", log.MaxSize, "Size of the audit log in megabytes at which another file is begun.")
	flags.IntVar(&log.MaxBackups, "audit-log-maxbackup", log.MaxBackups, "How many full audit logs stay; 0 keeps all.")
	flags.IntVar(&log.MaxAge, "audit-log-maxage", log.MaxAge, "For how many days a full audit log stays; 0 is for ever.")
	flags.BoolVar(&log.Compress, "audit-log-compress", log.Compress, "Compress full audit logs by gzip.")
}

// auditOptions are those of the API server. Without a policy of the administrator, ours is put where that can be read.
func (o *Options) auditOptions() (*genericoptions.AuditOptions, error) {
	if o.audit.LogOptions.Path == "" && o.audit.PolicyFile != "" {
		return nil, fmt.Errorf("--audit-policy-file %s: nothing is written without --audit-log-path; set that, too", o.audit.PolicyFile)
	}
	audit := *o.audit
	if audit.LogOptions.Path != "" && audit.PolicyFile == "" {
		audit.PolicyFile = filepath.Join(o.Config.DataDirectory, auditPolicyFile)
		if err := os.WriteFile(audit.PolicyFile, auditPolicy, 0o600); err != nil {
			return nil, fmt.Errorf("write the audit policy: %w", err)
		}
	}
	return &audit, nil
}
