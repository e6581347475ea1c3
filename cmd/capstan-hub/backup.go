package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/controlplane/backup"
	"github.com/capstan-io/capstan/internal/machinery/tcp"
)

// Backups in a folder are called hub-TIME.backup, so that the order of their names is that of their times.
const (
	backupPrefix     = "hub-"
	backupExtension  = ".backup"
	backupTimeLayout = "20060102T150405Z"
	// partialExtension is that of a backup that is not complete.
	partialExtension = ".partial"
)

// standardStream is the file name that stands for the standard input or output.
const standardStream = "-"

type backupFlags struct {
	kubeconfig, context string
	passphrase          passphraseFile
	directory           string
	keep                int
	every               time.Duration
}

func newBackupCommand() *cobra.Command {
	var flags backupFlags
	command := &cobra.Command{
		Use:   "backup [FILE]",
		Short: "Write a standalone hub to a file while it runs",
		Long: `Write a standalone hub to a file while it runs: all its objects, as of one moment, and the
keys in its data directory. It is readable for its owner alone; whoever has it controls the hub.
"capstan-hub restore" makes a hub of it.

The backup is checked, with the storage in it, of which there is an unnamed copy meanwhile, which is
not encrypted: in the folder that TMPDIR names; without TMPDIR, beside the backup, or in that for
temporary files if the backup is encrypted or goes to "-". If the storage is damaged, there is no
file, and older ones stay.

Files that you gave the hub are not in it: ocmconfig.yaml, that of --encryption-provider-config,
and a CA of your own. Keep copies; those that cannot be made again are named.

The kubeconfig is that of an administrator of the hub, who may run this anywhere. FILE "-" is
the standard output. With --directory, the file is named for the time.

A hub on an external etcd is backed up with that.`,
		Example: `  capstan-hub backup --kubeconfig hub/data/cert/kube-aggregator.kubeconfig hub.backup

  # Four times a day, the last 28
  capstan-hub backup --directory /var/backups/hub --every 6h --keep 28`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := flags.validate(args); err != nil {
				return err
			}
			return flags.run(command.Context(), args)
		},
	}
	flags.add(command.Flags())
	return command
}

func (f *backupFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig, "Kubeconfig of an administrator of the hub (default: as kubectl).")
	flags.StringVar(&f.context, "context", f.context, "Context of the kubeconfig (default: its current one).")
	f.passphrase.add(flags, "encrypts the backup")
	flags.StringVar(&f.directory, "directory", f.directory, "Folder for backups that are named for their times, instead of FILE.")
	flags.IntVar(&f.keep, "keep", f.keep, "How many of the backups that are named so stay in --directory, with the new one; 0 keeps all.")
	flags.DurationVar(&f.every, "every", f.every,
		"Write a backup to --directory at this interval from the last one there, until interrupted; after a failure, again within five minutes.")
}

func (f *backupFlags) validate(args []string) error {
	switch {
	case f.directory == "" && len(args) == 0:
		return errors.New("name a FILE, or a folder with --directory")
	case f.directory != "" && len(args) > 0:
		return fmt.Errorf("%s and --directory %s exclude each other", args[0], f.directory)
	case f.directory == "" && f.keep != 0:
		return errors.New("--keep is for backups in --directory")
	case f.directory == "" && f.every != 0:
		return errors.New("--every is for backups in --directory")
	case f.keep < 0:
		return fmt.Errorf("--keep %d: use 1 or more, or 0 to keep all", f.keep)
	case f.every < 0:
		return fmt.Errorf("--every %s: use a positive duration such as 6h", f.every)
	}
	return nil
}

func (f *backupFlags) run(ctx context.Context, args []string) error {
	if f.every == 0 {
		return withoutUntidy(os.Stderr, f.once(ctx, args))
	}
	now := time.Now()
	for _, err := range []error{removeAbandoned(f.directory, now), f.check()} {
		if err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
		}
	}
	due := f.firstDue(now)
	fmt.Fprintln(os.Stderr, "The next backup is due at", due.Format(time.RFC3339))
	repeat(ctx, due, f.every, func() error { return f.once(ctx, args) })
	return nil
}

// check says what is wrong with the files that flags name, which may come to be right before the first backup is due.
func (f *backupFlags) check() error {
	_, noPassphrase := f.passphrase.read()
	_, _, noClient := f.client()
	return errors.Join(noPassphrase, noClient)
}

// firstDue is when the backup after the last one in the folder is due, so that those which a service writes when it is started again and
// again do not replace older ones. Backups that are dated later than now are of a clock that was wrong, and empty files are none.
func (f *backupFlags) firstDue(now time.Time) time.Time {
	entries, err := os.ReadDir(f.directory) // in the order of names
	if err != nil {
		return now // the backup makes the folder, or says what is wrong with it
	}
	due := now
	for _, entry := range entries {
		if last, named := backupTime(entry.Name()); named && !last.After(now) && hasContent(entry) {
			due = last.Add(f.every)
		}
	}
	if due.Before(now) {
		return now
	}
	return due
}

func hasContent(entry fs.DirEntry) bool {
	info, err := entry.Info()
	return err == nil && info.Size() > 0
}

// retryAfter is how long after a failure a backup is tried again, if the next is not due before.
const retryAfter = 5 * time.Minute

// repeat makes backups until ctx ends: the first when it is due, and the next at an interval from the start of the last one, or sooner if
// that failed.
func repeat(ctx context.Context, due time.Time, every time.Duration, backUp func() error) {
	for {
		timer := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		due = time.Now().Add(every)
		if err := withoutUntidy(os.Stderr, backUp()); err != nil && ctx.Err() == nil {
			wait := min(retryAfter, every)
			due = time.Now().Add(wait)
			fmt.Fprintf(os.Stderr, "Error: %v; it is tried again in %s\n", err, wait)
		}
	}
}

// untidyError says why files that should be gone stay in the folder of a backup. The backup is complete: another at once would only have
// --keep remove older ones sooner.
type untidyError struct{ error }

// withoutUntidy writes down an untidyError instead of returning it: who runs the command, such as a Job, makes no other backup for it.
func withoutUntidy(w io.Writer, err error) error {
	var untidy *untidyError
	if !errors.As(err, &untidy) {
		return err
	}
	fmt.Fprintln(w, "Error:", err)
	return nil
}

func (f *backupFlags) once(ctx context.Context, args []string) error {
	if f.directory == "" {
		return f.write(ctx, args[0])
	}
	if err := os.MkdirAll(f.directory, 0o700); err != nil {
		return err
	}
	now := time.Now()
	abandoned := removeAbandoned(f.directory, now) // it makes room first
	name := backupName(now)
	if err := f.write(ctx, filepath.Join(f.directory, name)); err != nil {
		return errors.Join(err, abandoned)
	}
	if err := errors.Join(removeOldBackups(f.directory, name, f.keep), abandoned); err != nil {
		return &untidyError{fmt.Errorf("the backup is complete, and older files stay: %w", err)}
	}
	return nil
}

// abandonedAfter is how long nothing is added to a backup before nobody writes it any more: a hub ends one that stalls much sooner.
const abandonedAfter = time.Hour

// removeAbandoned removes the backups that a process has left that was killed while it wrote them.
func removeAbandoned(directory string, now time.Time) error {
	found, err := fs.Glob(os.DirFS(directory), backupPrefix+"*"+backupExtension+".*"+partialExtension)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range found {
		partial := filepath.Join(directory, name)
		info, err := os.Stat(partial)
		if err == nil && now.Sub(info.ModTime()) > abandonedAfter {
			err = os.Remove(partial)
		}
		if !errors.Is(err, fs.ErrNotExist) { // another process may have completed or removed it
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeOldBackups leaves so many backups: the one that was just written, and the last ones before it. Those that are dated later than that
// one are of a clock that was wrong, and go first. What is not named as backups are stays, and everything does if keep is 0.
func removeOldBackups(directory, written string, keep int) error {
	if keep == 0 {
		return nil
	}
	entries, err := os.ReadDir(directory) // in the order of names
	if err != nil {
		return err
	}
	var before, later []string
	for _, entry := range entries {
		name := entry.Name()
		_, named := backupTime(name)
		switch {
		case !named || name == written:
		case name < written:
			before = append(before, name)
		default:
			later = append(later, name)
		}
	}
	others := slices.Concat(later, before)
	var errs []error
	for _, name := range others[:max(0, len(others)+1-keep)] {
		err := os.Remove(filepath.Join(directory, name))
		if !errors.Is(err, fs.ErrNotExist) { // another process may have removed it
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// backupName is that of the file of a backup in a folder.
func backupName(at time.Time) string {
	return backupPrefix + at.UTC().Format(backupTimeLayout) + backupExtension
}

// backupTime is the time that the name of a backup in a folder has; other files have none.
func backupTime(name string) (time.Time, bool) {
	at, err := time.Parse(backupPrefix+backupTimeLayout+backupExtension, name)
	return at, err == nil && backupName(at) == name
}

// write writes a backup to a file that does not exist yet.
func (f *backupFlags) write(ctx context.Context, file string) error {
	if file == standardStream {
		return f.copyTo(ctx, os.Stdout, "the standard output", "")
	}
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("%s exists; choose another name", file)
	}
	to, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*"+partialExtension) // for its owner alone
	if err != nil {
		return err
	}
	partial := to.Name()
	err = f.copyTo(ctx, to, file, filepath.Dir(file))
	if err == nil {
		err = to.Sync()
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	return os.Rename(partial, file)
}

// folderOfCopy is where the copy of the storage is made that is checked: beside the backup, which has room, unless the user has named
// another folder, or encrypts backups for that one; empty is the folder for temporary files.
func folderOfCopy(folder, passphrase string) string {
	if passphrase != "" || os.Getenv("TMPDIR") != "" {
		return ""
	}
	return folder
}

// copyTo writes a backup to a folder, if it has one, and checks it.
func (f *backupFlags) copyTo(ctx context.Context, to io.Writer, name, folder string) error {
	passphrase, err := f.passphrase.read()
	if err != nil {
		return err
	}
	progress := &backup.Progress{}
	shown := showProgress(os.Stderr, name, progress)
	defer shown.Close()
	body, err := f.download(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	counted := &counter{Writer: to}
	target, closeTarget := io.Writer(counted), func() error { return nil }
	if passphrase != "" {
		encrypted, err := backup.Encrypt(counted, passphrase)
		if err != nil {
			return err
		}
		target, closeTarget = encrypted, encrypted.Close
	}
	both := io.TeeReader(body, target)
	description, _, err := backup.Check(ctx, both, folderOfCopy(folder, passphrase), progress)
	if err != nil {
		return fmt.Errorf("check what the hub sends: %w", err)
	}
	if _, err := io.Copy(io.Discard, both); err != nil { // what follows the last file
		return err
	}
	if err := closeTarget(); err != nil {
		return err
	}
	shown.Done(name, "written")
	shown.Close()
	fmt.Fprintf(os.Stderr, "The hub %s as of %s is in %s: %.1f MB, checked\n", description.Hub, description.Created.Format(time.RFC3339), name,
		float64(counted.n)/1e6)
	for _, file := range lacking(description) {
		fmt.Fprintln(os.Stderr, "The backup does not have", file+"; keep a copy of it elsewhere")
	}
	return nil
}

// counter counts what it writes.
type counter struct {
	io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n += int64(n)
	return n, err
}

// client is that of the kubeconfig, with the address of the hub.
func (f *backupFlags) client() (*http.Client, *url.URL, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	chosen := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, chosen).ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	new(tcp.Dialer).Use(config)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return client, base, nil
}

// download requests a backup from the hub.
func (f *backupFlags) download(ctx context.Context) (io.ReadCloser, error) {
	client, base, err := f.client()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath(backup.Path).String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the hub for a backup: %w", err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	return nil, refusal(base.String(), response)
}

// refusal says why a server sends no backup.
func refusal(server string, response *http.Response) error {
	const shown = 1000
	content, err := io.ReadAll(io.LimitReader(response.Body, shown))
	reason := strings.TrimSpace(string(content))
	switch {
	case err != nil:
		return err
	case response.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s is no standalone hub: it has no %s", server, backup.Path)
	case response.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%s sends a backup to administrators only, those who may get %s: %s", server, backup.Path, reason)
	}
	return fmt.Errorf("%s sends no backup: %s: %s", server, response.Status, reason)
}

// passphraseFile names a file with a passphrase.
type passphraseFile string

func (p *passphraseFile) add(flags *pflag.FlagSet, does string) {
	flags.StringVar((*string)(p), "passphrase-file", string(*p), "File with a passphrase that "+does+" (https://age-encryption.org).")
}

// read is empty if there is no file.
func (p *passphraseFile) read() (string, error) {
	if *p == "" {
		return "", nil
	}
	content, err := os.ReadFile(string(*p))
	if err != nil {
		return "", fmt.Errorf("--passphrase-file: %w", err)
	}
	passphrase := strings.TrimRight(string(content), "\r\n")
	if passphrase == "" {
		return "", fmt.Errorf("--passphrase-file %s is empty; write a passphrase into it", *p)
	}
	return passphrase, nil
}
