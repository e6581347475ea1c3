// Command testpod is what the containers of tests run, next to the tools of busybox: what those cannot do.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const usage = `usage:
  testpod pause                hold the namespaces of a pod
  testpod serve ADDRESS        answer HTTP with the hostname
  testpod get [FLAGS...] URL   print the answer to an HTTP request; fail unless its status is 200
  testpod allocate MEBIBYTES   use memory, and keep it`

func main() {
	commands := map[string]func(args []string) error{"pause": pause, "serve": serve, "get": get, "allocate": allocate}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pause reaps the processes that others leave it, until it is stopped.
func pause([]string) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			break
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

func serve(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("serve takes one address, such as :8080, not %q", args)
	}
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	server := &http.Server{
		Addr:              args[0],
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Printf("%s %s\n", r.Method, r.URL.Path)
			fmt.Fprintln(w, hostname)
		}),
	}
	fmt.Println("serving on", args[0])
	return server.ListenAndServe()
}

func get(args []string) error {
	flags := flag.NewFlagSet("get", flag.ExitOnError)
	ca := flags.String("ca", "", "file with the certificates of the authorities to trust (default: those of the system)")
	token := flags.String("token", "", "file with a bearer token")
	timeout := flags.Duration("timeout", 10*time.Second, "how long it may take")
	_ = flags.Parse(args) // it exits
	if flags.NArg() != 1 {
		return fmt.Errorf("get takes one URL, not %q", flags.Args())
	}
	request, err := http.NewRequest(http.MethodGet, flags.Arg(0), nil)
	if err != nil {
		return err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if *ca != "" {
		content, err := os.ReadFile(*ca)
		if err != nil {
			return err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(content) {
			return fmt.Errorf("%s has no certificates", *ca)
		}
	}
	if *token != "" {
		content, err := os.ReadFile(*token)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(content)))
	}
	client := &http.Client{Timeout: *timeout, Transport: &http.Transport{TLSClientConfig: config}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", request.URL, response.Status)
	}
	return nil
}

func allocate(args []string) error {
	var mebibytes int
	if _, err := fmt.Sscan(strings.Join(args, " "), &mebibytes); err != nil {
		return fmt.Errorf("allocate takes a number of mebibytes, not %q", args)
	}
	memory := make([]byte, mebibytes<<20)
	for i := range memory {
		memory[i] = 1
	}
	fmt.Println("allocated", len(memory)>>20)
	return pause(nil)
}
