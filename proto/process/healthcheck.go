package process

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
	// listenFlag is the flag for the health address.
	listenFlag = "listen"
	// healthcheckTimeout is shorter than the health check timeout of container engines.
	healthcheckTimeout = 3 * time.Second
	// maxReadiness is the maximum number of bytes to read of a response.
	maxReadiness = 16 << 10
)

// addHealthcheck adds a subcommand that checks the health of a running process, because images
// without a shell have no other client.
func addHealthcheck(cmd *cobra.Command) {
	listen := cmd.Flags().Lookup(listenFlag)
	if listen == nil {
		return
	}
	check := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check whether the running process is ready, and exit with 1 if it is not",
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

// askReady returns nil if the process at the address is ready, or else the reason in one sentence.
func askReady(ctx context.Context, listen string) error {
	if listen == "" {
		return errors.New("--listen is empty: the process serves no health")
	}
	if _, _, err := net.SplitHostPort(listen); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listen+"/readyz", http.NoBody)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	transport := &http.Transport{DisableKeepAlives: true} // without a proxy, whatever the environment says
	response, err := transport.RoundTrip(request)
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no response at %s within %s", listen, healthcheckTimeout)
	case err != nil:
		return fmt.Errorf("request to %s: %w", listen, err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxReadiness))
	if err != nil {
		return fmt.Errorf("read the response of %s: %w", listen, err)
	}
	return fmt.Errorf("not ready: %s", unready(string(text), response.Status))
}

// unready lists the parts that are not ready, from a response of Health. Without any, it returns the
// status.
func unready(text, status string) string {
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
