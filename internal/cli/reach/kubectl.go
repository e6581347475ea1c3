package reach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/cli/clusterapi"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/playground"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/terminal"
)

// kubectlProgram is the program to run, from PATH.
const kubectlProgram = "kubectl"

const kubectlLong = `Run kubectl against a cluster, through the hub.

The kubectl in PATH gets a kubeconfig that leads to the cluster, for as long as it runs. What it may do there is what the cluster lets you
do. With --sa, it is what the cluster lets a ManagedServiceAccount do, whose token is in a Secret on the hub: the request carries your
credentials as far as the hub, and the token from there.

The cluster needs the add-on cluster-proxy.`

const rootKubectlLong = kubectlLong + `

The flags below go before "kubectl" or right behind it; everything else is for kubectl, also flags of the same names.`

const proxyKubectlLong = kubectlLong + `

"capstan --cluster CLUSTER kubectl ..." does the same. Flags of kubectl come after "--", or after the first word for it.`

// kubectlRun is one run of kubectl against a cluster, or several with --interactive-mode.
type kubectlRun struct {
	*options.Global
	cluster        string
	serviceAccount string

	hub    *hubapi.Hub
	limit  time.Duration // that the cluster has to answer
	folder string        // of the kubeconfig
	env    []string
}

func (r *kubectlRun) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.SetInterspersed(false) // what follows the first word for kubectl is for kubectl
	flags.StringVarP(&r.cluster, "cluster", "c", "", "name of the cluster")
	flags.StringVar(&r.serviceAccount, "sa", "", "act as the ManagedServiceAccount of this name (default: as yourself)")
	options.Complete(command, "cluster", r.CompleteClusters)
	options.Complete(command, "sa", cobra.NoFileCompletions)
}

// NewKubectlCommand is "capstan kubectl".
func NewKubectlCommand(global *options.Global) *cobra.Command {
	run := &kubectlRun{Global: global}
	command := &cobra.Command{
		Use:   kubectlProgram + " --cluster CLUSTER ARGUMENT...",
		Short: "Run kubectl against a cluster, through the hub",
		Long:  rootKubectlLong,
		Example: "  capstan --cluster cluster1 kubectl get pods -A\n" +
			"  capstan --cluster cluster1 kubectl exec -it web-0 -- sh\n" +
			"  capstan kubectl --cluster cluster1 --sa deployer logs -f deployment/web",
		RunE: func(command *cobra.Command, args []string) error { return run.runOnce(command, args) },
	}
	run.addFlags(command)
	return command
}

// NewProxyKubectlCommand is "capstan proxy kubectl".
func NewProxyKubectlCommand(global *options.Global) *cobra.Command {
	run := &kubectlRun{Global: global}
	var text string
	var interactive bool
	command := &cobra.Command{
		Use:   kubectlProgram + " --cluster CLUSTER [-- ARGUMENT...]",
		Short: "Run kubectl against a cluster, through the hub",
		Long:  proxyKubectlLong,
		Example: "  capstan proxy kubectl --cluster cluster1 -- get pods -A\n" +
			"  capstan proxy kubectl --cluster cluster1 --sa deployer --args \"get pods -n web\"\n" +
			"  capstan proxy kubectl --cluster cluster1 --interactive-mode",
	}
	run.addFlags(command)
	command.Flags().StringVar(&text, "args", "", "arguments for kubectl in one text, with quotes as in a shell")
	command.Flags().BoolVarP(&interactive, "interactive-mode", "i", false, "ask for the arguments of one kubectl after the other")
	options.Complete(command, "args", cobra.NoFileCompletions)
	command.RunE = func(command *cobra.Command, args []string) error {
		words, err := splitWords(text)
		if err != nil {
			return fmt.Errorf("--args: %w", err)
		}
		args = append(words, args...)
		if !interactive {
			return run.runOnce(command, args)
		}
		if len(args) > 0 {
			return errors.New("--interactive-mode asks for arguments: leave out --args and those behind the flags")
		}
		return run.withKubeconfig(command, run.runInteractive)
	}
	return command
}

func (r *kubectlRun) runOnce(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("nothing for kubectl to do: %s", command.UseLine())
	}
	return r.withKubeconfig(command, func(context.Context) error { return r.kubectl(args, r.In) })
}

// withKubeconfig calls a function while there is a kubeconfig for the cluster.
func (r *kubectlRun) withKubeconfig(command *cobra.Command, do func(ctx context.Context) error) error {
	if r.cluster == "" {
		return errors.New("--cluster needs to be set; \"capstan get clusters\" lists those there are")
	}
	if err := options.CheckClusterName("--cluster", r.cluster); err != nil {
		return err
	}
	if _, err := exec.LookPath(kubectlProgram); err != nil {
		return fmt.Errorf("%s is not in PATH: install it (https://kubernetes.io/docs/tasks/tools), or read with \"capstan get RESOURCE --clusters %s\", "+
			"which does without: %w", kubectlProgram, r.cluster, err)
	}
	hub, err := r.Global.Hub()
	if err != nil {
		return err
	}
	r.hub, r.limit = hub, clusterLimit(r.Global, command)
	ctx := command.Context()
	if err := r.checkConnected(ctx); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "capstan-") // which only its owner can read
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	r.folder = folder
	config, _, err := r.Target().HubKubeconfig()
	if err != nil {
		return err
	}
	server, err := clusterapi.Server(ctx, r.hub, r.cluster)
	if err != nil {
		return err
	}
	config = clusterKubeconfig(config, server, r.cluster)
	if r.serviceAccount != "" {
		local, err := r.startTokenProxy(ctx, server)
		if err != nil {
			return err
		}
		defer local.close()
		config = local.kubeconfig(r.cluster)
	}
	if err := r.writeKubeconfig(config); err != nil {
		return err
	}
	return do(ctx)
}

// startTokenProxy starts a local proxy that adds the token of the service account to requests.
func (r *kubectlRun) startTokenProxy(ctx context.Context, server string) (*localProxy, error) {
	token := &accountToken{read: r.readToken, clock: r.Clock}
	if _, err := token.get(ctx); err != nil {
		return nil, err
	}
	// Its folder of caches would have one for each run.
	r.env = append(r.env, "KUBECACHEDIR="+filepath.Join(r.folder, "cache"))
	return startLocalProxy(r.hub, server, token)
}

// readToken reads the token of the service account, which is in a Secret on the hub. A token in another Secret is not for the cluster.
func (r *kubectlRun) readToken(ctx context.Context) (string, error) {
	ctx, cancel := r.Limited(ctx)
	defer cancel()
	secret, err := readSecret(ctx, r.hub, r.cluster, r.serviceAccount)
	if err != nil {
		return "", fmt.Errorf("--sa: %w", err)
	}
	if secret.Labels[fleet.LabelManagedServiceAccount] != fleet.LabelTrue {
		return "", fmt.Errorf("--sa: Secret %s of namespace %s is not that of a ManagedServiceAccount, which has the label %s=%s: name an account "+
			"of the cluster", secret.Name, secret.Namespace, fleet.LabelManagedServiceAccount, fleet.LabelTrue)
	}
	token := string(secret.Data[corev1.ServiceAccountTokenKey])
	if token == "" {
		return "", fmt.Errorf("--sa: Secret %s of namespace %s has no token: see whether there is a ManagedServiceAccount of this name, "+
			"and what its conditions say", secret.Name, secret.Namespace)
	}
	return token, nil
}

func (r *kubectlRun) writeKubeconfig(config *clientcmdapi.Config) error {
	content, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	file := filepath.Join(r.folder, "kubeconfig")
	r.env = append(r.env, clientcmd.RecommendedConfigPathEnvVar+"="+file)
	return playground.WriteSecretFile(file, content)
}

// kubectl runs it, with everything as if it had been started itself: the terminal, signals and the exit code.
func (r *kubectlRun) kubectl(args []string, in io.Reader) error {
	if r.DryRun {
		r.Say("would run %s %s", kubectlProgram, strings.Join(args, " "))
		return nil
	}
	command := exec.Command(kubectlProgram, args...) //nolint:noctx // signals end it, as they are
	command.Env = append(os.Environ(), r.env...)
	command.Stdin, command.Stdout, command.Stderr = in, r.Out, r.ErrOut
	return options.RunProgram(command)
}

// checkConnected makes sure that the cluster can be reached: kubectl reports it in many ways if not, none of them clear. What the cluster
// itself answers is for kubectl to handle.
func (r *kubectlRun) checkConnected(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	cluster, err := clusterapi.Of(ctx, r.hub, r.cluster)
	if err != nil {
		return err
	}
	if err = cluster.Health(ctx); err == nil {
		return nil
	}
	if problem := cluster.Diagnose(err, r.limit); !problem.Connected {
		return fmt.Errorf("cluster %s: %s", r.cluster, problem)
	}
	return nil
}

// runInteractive runs kubectl with one line after the other, until there is none or one says exit. An interrupt from the keyboard ends what
// kubectl does, such as "logs -f", or what is being typed, and not the session.
func (r *kubectlRun) runInteractive(ctx context.Context) error {
	lines := &commandLines{in: r.In, errOut: r.ErrOut, interrupts: make(chan os.Signal, 1)}
	var in io.Reader // commands from a pipe are not for kubectl to read
	if terminal.IsInput(r.In) {
		in = r.In
		r.Note("Enter what kubectl is to do on cluster %s, such as: get pods -n default. \"exit\" ends.", r.cluster)
		lines.prompt = r.cluster + "> "
		signal.Notify(lines.interrupts, os.Interrupt)
		defer signal.Stop(lines.interrupts)
		ctx = context.WithoutCancel(ctx)
	}
	ctx, stop := signal.NotifyContext(ctx, options.Terminations()...) // the kubeconfig is to go, whatever ends the session
	defer stop()
	for ctx.Err() == nil {
		line, err := lines.next(ctx)
		words, splitErr := splitWords(line)
		switch {
		case splitErr != nil:
			r.Note("%s", splitErr)
		case len(words) > 0 && slices.Contains([]string{"exit", "quit"}, words[0]):
			return nil
		case len(words) > 0:
			if words[0] == kubectlProgram {
				words = words[1:]
			}
			var exit options.ExitError
			if err := r.kubectl(words, in); err != nil && !errors.As(err, &exit) {
				return err
			}
		}
		if err != nil && ctx.Err() == nil {
			return nil // the end of what there is to read
		}
	}
	return options.ExitError{Code: options.InterruptedCode}
}

// commandLines are the lines that somebody types, or that a pipe has.
type commandLines struct {
	in         io.Reader
	errOut     io.Writer
	prompt     string         // none for a pipe
	interrupts chan os.Signal // those from the keyboard
}

// next reads a line and nothing behind it, which is for kubectl if it reads. At an interrupt, the terminal forgets what has been typed of
// the line; one that came before was for kubectl.
func (l *commandLines) next(ctx context.Context) (string, error) {
	select {
	case <-l.interrupts:
	default:
	}
	fmt.Fprint(l.errOut, l.prompt)
	read := make(chan struct{})
	var prompts sync.WaitGroup
	prompts.Go(func() {
		for {
			select {
			case <-l.interrupts:
				fmt.Fprint(l.errOut, "\n"+l.prompt)
			case <-read:
				return
			}
		}
	})
	defer prompts.Wait()
	defer close(read)
	return terminal.ReadLine(ctx, l.in)
}

// splitWords splits a text into words as a shell does, with quotes and backslashes.
func splitWords(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune
	inWord, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			if quote == '"' && !strings.ContainsRune("\"\\$`", c) {
				word.WriteRune('\\') // which is one for kubectl, such as that of \n
			}
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			inWord, escaped = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			inWord, quote = true, c
		case quote == 0 && strings.ContainsRune(" \t\r\n", c):
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	if quote != 0 || escaped {
		return nil, fmt.Errorf("%q: a quote is not closed", text)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// SeparateKubectl puts "--" between the flags of "capstan kubectl" and the arguments of kubectl, which may begin with flags of the same
// names.
func SeparateKubectl(root *cobra.Command, args []string) []string {
	own := func(name string) *pflag.Flag { return kubectlFlags.Lookup(name) }
	at := skipFlags(args, func(name string) *pflag.Flag {
		if flag := own(name); flag != nil {
			return flag
		}
		return root.PersistentFlags().Lookup(name)
	})
	if at < len(args) && slices.ContainsFunc(podCommands, func(c podCommand) bool { return c.name == args[at] }) {
		return separatePodCommand(args, at)
	}
	if at == len(args) || args[at] != kubectlProgram {
		return args
	}
	end := at + 1 + skipFlags(args[at+1:], own)
	if end < len(args) && args[end] == "--" {
		return args
	}
	return slices.Insert(slices.Clone(args), end, "--")
}

// kubectlFlags are the flags of "capstan kubectl", which may come before it, under their short names, too.
var kubectlFlags = func() *pflag.FlagSet {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range []string{"cluster", "c", "sa"} {
		flags.String(name, "", "")
	}
	for _, name := range []string{"help", "h"} {
		flags.Bool(name, false, "")
	}
	return flags
}()

// skipFlags returns the index of the first argument that is no known flag.
func skipFlags(args []string, lookup func(name string) *pflag.Flag) int {
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		name, isLong := strings.CutPrefix(name, "-")
		name, _, withValue := strings.Cut(name, "=")
		if !isLong && len(name) > 1 { // -cNAME
			name, withValue = name[:1], true
		}
		flag := lookup(name)
		if !isFlag || flag == nil {
			return i
		}
		if flag.NoOptDefVal == "" && !withValue {
			i++
		}
	}
	return len(args)
}
