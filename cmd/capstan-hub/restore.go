package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capstan-io/capstan/internal/controlplane"
	"github.com/capstan-io/capstan/internal/controlplane/backup"
	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

type restoreFlags struct {
	configDir, etcdDirectory string
	passphrase               passphraseFile
	suspendWorks             bool
}

func newRestoreCommand() *cobra.Command {
	flags := restoreFlags{configDir: ocmconfig.DefaultDir}
	command := &cobra.Command{
		Use:   "restore [FILE]",
		Short: "Make a standalone hub of a backup",
		Long: `Make a standalone hub of a backup, which "capstan-hub backup" has written: in the dataDirectory
of ` + ocmconfig.FileName + `, which must have no hub so far. The backup is checked first. Then start
the hub as before. To its agents it is the hub that it was; those find it if it has the name or
the address that it had.

Agents do what the restored hub says. What has changed since the backup is undone: a work that
has been created since is not known any more, and its objects are removed from the clusters
after the grace period of their agents, an hour by default; a work that was deleted since is
applied again. Service accounts and credentials of add-ons that have been created since are
removed at once. With --hold-works, agents leave their clusters as they are until an
administrator has put works and add-ons right and says so; those that reach the hub by a broker
or by its gRPC server do not wait. FILE "-" is the standard input.

Clusters that have joined since are missing, and who was denied, cut off or deleted since is let
in again. What is printed at the end says what to do about that.

A hub on an external etcd is restored with that. For such a hub, --hold-works without FILE has
it hold what agents change their clusters by when the process with this configuration starts,
which is to be the first one then, and alone until it is ready.`,
		Example: `  capstan-hub restore --controlplane-config-dir hub/config hub.backup
  capstan-hub server --controlplane-config-dir hub/config

  # Nothing changes on clusters until you have looked at the restored hub
  capstan-hub restore --controlplane-config-dir hub/config --hold-works hub.backup
  capstan-hub server --controlplane-config-dir hub/config
  kubectl -n ` + fleet.NamespaceHub + ` delete configmap ` + fleet.ConfigMapWorksHeld,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return flags.run(command.Context(), command.OutOrStdout(), args, command.Flags().Changed("controlplane-config-dir"))
		},
	}
	flags.add(command.Flags())
	return command
}

func (f *restoreFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.configDir, "controlplane-config-dir", f.configDir, "Folder with "+ocmconfig.FileName+", as for the server.")
	flags.StringVar(&f.etcdDirectory, "embedded-etcd-directory", f.etcdDirectory,
		"Folder of the embedded etcd's data, as for the server (default: etcd in the data directory).")
	f.passphrase.add(flags, "decrypts the backup")
	flags.BoolVar(&f.suspendWorks, "hold-works", f.suspendWorks,
		"Have the hub hold from agents works and all else that they change their clusters by, until ConfigMap "+fleet.NamespaceHub+"/"+
			fleet.ConfigMapWorksHeld+" is deleted.")
}

func (f *restoreFlags) run(ctx context.Context, out io.Writer, args []string, explicit bool) error {
	// Of the ports, which are the server's matter, those of a hub in a cluster include all others.
	config, err := ocmconfig.Load(ocmconfig.Options{Dir: f.configDir, Explicit: explicit, InCluster: true})
	if err != nil {
		return err
	}
	if config.Etcd.Mode != ocmconfig.EtcdEmbed {
		return f.runExternal(out, config, args)
	}
	if len(args) == 0 || args[0] == "" {
		return fmt.Errorf("name a FILE: etcd.mode in %s is %s, and only a hub with the mode %s is restored without one", config.File,
			config.Etcd.Mode, ocmconfig.EtcdExternal)
	}
	file := args[0]
	content, err := openBackup(file, f.passphrase)
	if err != nil {
		return err
	}
	defer content.Close()
	progress, name := &backup.Progress{}, inputName(file)
	shown := showProgress(os.Stderr, name, progress)
	defer shown.Close()
	description, contents, err := backup.Restore(ctx, content, backup.Target{
		DataDir: config.DataDirectory, EtcdDir: controlplane.EtcdDirectory(config.DataDirectory, f.etcdDirectory),
		NamedEtcdDir: f.etcdDirectory != "", Prefix: config.Etcd.Prefix, SuspendWorks: f.suspendWorks, Progress: progress,
	})
	if err != nil {
		return err
	}
	shown.Done(name, "restored")
	shown.Close()
	at := description.Created.Format(time.RFC3339)
	fmt.Fprintf(out, "The hub %s as of %s is in %s\n", description.Hub, at, config.DataDirectory)
	for _, file := range lacking(description) {
		fmt.Fprintln(out, "Before it starts, put in place what the backup does not have:", file)
	}
	printLost(out, at)
	if contents.WorksHeld && !f.suspendWorks {
		fmt.Fprintln(out, "The hub of the backup held its works, and so does this one")
	}
	if contents.WorksHeld || f.suspendWorks {
		printHeld(out)
		return nil
	}
	fmt.Fprintln(out, "When it runs, agents undo what was changed since; with --hold-works they would wait")
	return nil
}

// runExternal is for a hub whose objects are in an etcd that this command does not restore.
func (f *restoreFlags) runExternal(out io.Writer, config *ocmconfig.Config, args []string) error {
	if len(args) > 0 || !f.suspendWorks {
		return fmt.Errorf("etcd.mode in %s is %s; restore that etcd with its own tools, such as \"etcdutl snapshot restore "+
			"--bump-revision $(date +%%s)000000 --mark-compacted\", and use --hold-works without FILE if agents are to wait; or use the mode %s",
			config.File, config.Etcd.Mode, ocmconfig.EtcdEmbed)
	}
	if f.passphrase != "" {
		return fmt.Errorf("--passphrase-file %s: leave it out: --hold-works without FILE reads no backup", f.passphrase)
	}
	if f.etcdDirectory != "" {
		return fmt.Errorf("%s %s: leave it out: etcd.mode in %s is %s", backup.EtcdDirectoryFlag, f.etcdDirectory, config.File,
			config.Etcd.Mode)
	}
	if err := backup.HoldWorks(config.DataDirectory); err != nil {
		return err
	}
	fmt.Fprintf(out, "The process with the data directory %s makes the hub hold its works: start it first, and others when it is ready\n",
		config.DataDirectory)
	printHeld(out)
	return nil
}

// printHeld says how the hold of a hub ends.
func printHeld(out io.Writer) {
	fmt.Fprintf(out, "When it runs, agents leave their clusters as they are until: kubectl -n %s delete configmap %s\n", fleet.NamespaceHub,
		fleet.ConfigMapWorksHeld)
}

// printLost says what a hub does not know that is restored as of a time, where nothing else shows it. Certificates of clusters that have
// joined later are valid from later.
func printLost(out io.Writer, at string) {
	fmt.Fprintf(out, `What was done since then is lost:
- Clusters that have joined are missing, and keep what is applied on them. To have one again, create its ManagedCluster when
  the hub runs, with spec.hubAcceptsClient: true and the annotation %s: %q
- Clusters that were denied, cut off or deleted are let in again, and so are bootstrap tokens that were deleted. Keep agents
  from the hub until you have repeated that: capstan deny --clusters NAME --now, capstan delete token
`, fleet.AnnotationCredentialsNotBefore, at)
}

func newCheckBackupCommand() *cobra.Command {
	var passphrase passphraseFile
	format := ""
	command := &cobra.Command{
		Use:   "check-backup FILE",
		Short: "Check a backup, and show what is in it",
		Long: `Check a backup, and show what is in it: which hub, as of when, how many objects of which kinds, and
which files the hub needs besides. FILE "-" is the standard input. Meanwhile, there is an unnamed
copy of the storage in the folder for temporary files (TMPDIR), which is not encrypted.`,
		Example: `  capstan-hub check-backup hub.backup
  capstan-hub check-backup hub.backup -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if format != "" && format != "json" {
				return fmt.Errorf("-o %s: use json, or leave it out", format)
			}
			return checkBackup(command.Context(), command.OutOrStdout(), args[0], passphrase, format)
		},
	}
	passphrase.add(command.Flags(), "decrypts the backup")
	command.Flags().StringVarP(&format, "output", "o", format, "Format: json, or a text.")
	return command
}

func checkBackup(ctx context.Context, out io.Writer, file string, passphrase passphraseFile, format string) error {
	content, err := openBackup(file, passphrase)
	if err != nil {
		return err
	}
	defer content.Close()
	progress, name := &backup.Progress{}, inputName(file)
	shown := showProgress(os.Stderr, name, progress)
	defer shown.Close()
	description, contents, err := backup.Check(ctx, content, "", progress)
	if err != nil {
		return err
	}
	shown.Done(name, "checked")
	shown.Close()
	if format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(struct {
			*backup.Description
			*backup.Contents
		}{description, contents})
	}
	fmt.Fprintf(out, "hub       %s\ncreated   %s\nversion   %s\nrevision  %d\n", description.Hub, description.Created.Format(time.RFC3339),
		description.Version, contents.Revision)
	for _, file := range lacking(description) {
		fmt.Fprintln(out, "lacks    ", file)
	}
	if contents.WorksHeld {
		fmt.Fprintln(out, "held      agents get no works before ConfigMap", fleet.NamespaceHub+"/"+fleet.ConfigMapWorksHeld, "is deleted")
	}
	most := func(a, b string) int { return cmp.Or(contents.Objects[b]-contents.Objects[a], cmp.Compare(a, b)) }
	for _, resource := range slices.SortedFunc(maps.Keys(contents.Objects), most) {
		fmt.Fprintf(out, "%8d  %s\n", contents.Objects[resource], resource)
	}
	return nil
}

// lacking are the files that a restored hub needs and the backup does not have.
func lacking(d *backup.Description) (files []string) {
	for _, file := range d.Lacks {
		what := fmt.Sprintf("%s (%s)", file.Path, file.Setting)
		if file.Setting == backup.EncryptionFlag && len(d.Encryption) > 0 {
			what += ", without which nobody can read the Secrets, encrypted by " + strings.Join(d.Encryption, ", ")
		}
		files = append(files, what)
	}
	return files
}

// inputName is what messages call a file to read.
func inputName(file string) string {
	if file == standardStream {
		return "the standard input"
	}
	return file
}

// openBackup opens a backup, which may be encrypted.
func openBackup(file string, passphrase passphraseFile) (io.ReadCloser, error) {
	secret, err := passphrase.read()
	if err != nil {
		return nil, err
	}
	f := os.Stdin
	if file != standardStream {
		if f, err = os.Open(file); err != nil {
			return nil, err
		}
	}
	content, err := backup.Decrypt(f, secret)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", file, err), f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{content, f}, nil
}
