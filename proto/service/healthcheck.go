package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	// listenFlag is the flag of the address for health.
	listenFlag = "listen"
	// healthcheckTimeout is below the timeout that container engines give a
	// health check.
	healthcheckTimeout = 3 * time.Second
	// maxReadiness bounds what is read of an answer, in bytes.
	maxReadiness = 16 << 10
)

// addHealthcheck gives a command that serves health a subcommand that asks for
// it: images without a shell have nothing else to ask with.
func addHealthcheck(cmd *cobra.Command) {
	listen := cmd.Flags().Lookup(listenFlag)
	if listen == nil {
		return
	}
	check := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the running process whether it is ready; exit with 1 if it is not",
		Long: "Healthcheck asks the process that serves health at the address of --listen whether\n" +
			"all its parts are ready: for a container's HEALTHCHECK. Give it the same --listen,\n" +
			"by flag or environment, as the process.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := askReady(cmd.Context(), listen.Value.String()); err != nil {
				return fmt.Errorf("healthcheck: %w", err)
			}
			return nil
		},
	}
	check.Flags().AddFlag(listen)
	cmd.AddCommand(check)
}

// askReady returns nil when the process that listens at the address is ready,
// and else one sentence with the reason.
func askReady(ctx context.Context, listen string) error {
	address, err := reachable(listen)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	transport := &http.Transport{DisableKeepAlives: true} // and no proxy, whatever the environment holds
	answer, err := transport.RoundTrip(request)
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no answer at %s within %s", address, healthcheckTimeout)
	case err != nil:
		return fmt.Errorf("ask at %s: %w", address, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxReadiness))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", address, err)
	}
	return fmt.Errorf("not ready: %s", missing(string(text), answer.Status))
}

// reachable is where a process can be reached that listens at an address: on
// loopback if it listens everywhere.
func reachable(listen string) (string, error) {
	if listen == "" {
		return "", errors.New("--listen is empty: the process serves no health")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("--listen: %w", err)
	}
	switch ip := net.ParseIP(host); {
	case host == "":
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port), nil
}

// missing lists the parts that are not ready as Health names them; without any,
// the status.
func missing(text, status string) string {
	var parts []string
	for line := range strings.Lines(text) {
		if part, found := strings.CutPrefix(strings.TrimSpace(line), "[-]"); found {
			name, reason, _ := strings.Cut(part, " not ready: ")
			parts = append(parts, name+" ("+reason+")")
		}
	}
	if len(parts) == 0 {
		return status
	}
	return strings.Join(parts, ", ")
}
