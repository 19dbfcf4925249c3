package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/doorstep-dev/doorstep/controllers"
	"github.com/doorstep-dev/doorstep/internal/tracing"
)

// lastTraces is how long the traces that are left may take to be sent at the end.
const lastTraces = 2 * time.Second

func newManagerCommand(s Streams) *cobra.Command {
	var o controllers.Options
	var kubeconfig, defaultPool string
	var verbosity int
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run the control plane in a cluster",
		Long: "Run the control plane: it reconciles WebhookEndpoints, RetryPolicies and DeliveryPools, writes each pool's plan\n" +
			"and keeps its workers. It ends where an older installation looks at the same namespaces.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Namespace = cmp.Or(o.Namespace, s.Getenv("POD_NAMESPACE"), "doorstep-system")
			o.Image, o.PodName = s.Getenv("DOORSTEP_IMAGE"), s.Getenv("POD_NAME")
			switch defaultPool {
			case "embedded":
				o.DefaultPool = true
			case "none":
			default:
				return fmt.Errorf("--default-pool %s: it must be embedded or none", defaultPool)
			}
			if o.RenewDeadline >= o.LeaseDuration || o.RetryTime >= o.RenewDeadline {
				return errors.New("--lease-duration must be longer than --renew-deadline, and that longer than --retry-period")
			}
			var err error
			if o.Config, err = clusterConfig(kubeconfig); err != nil {
				return err
			}
			o.Log = newClusterLogger(s.Err, verbosity)
			endTraces, err := tracing.Start(cmd.Context(), s.Getenv, "doorstep-manager", version, o.Log)
			if err != nil {
				return err
			}
			err = controllers.Run(cmd.Context(), o)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), lastTraces)
			defer cancel()
			if failed := endTraces(ctx); failed != nil {
				o.Log.Info("The last traces can't be sent, and are dropped", "error", failed.Error())
			}
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&kubeconfig, "kubeconfig", "", "file that says how to reach the API server (default: as a pod does, else $KUBECONFIG)")
	fl.StringVar(&o.Namespace, "namespace", "", "namespace of the installation, with the pool of endpoints that name none (default $POD_NAMESPACE, else doorstep-system)")
	fl.StringSliceVar(&o.WatchNamespaces, "watch-namespaces", nil, "the only namespaces to look at, beside the installation's own (default all)")
	fl.StringVar(&defaultPool, "default-pool", "embedded", "make DeliveryPool default once where there is none: embedded, or none to leave that to you")
	fl.BoolVar(&o.LeaderElect, "leader-elect", false, "let one of several managers work at a time")
	fl.DurationVar(&o.LeaseDuration, "lease-duration", 30*time.Second, "how long other managers wait for one that is silent")
	fl.DurationVar(&o.RenewDeadline, "renew-deadline", 20*time.Second, "how long the leader tries to renew before it gives up")
	fl.DurationVar(&o.RetryTime, "retry-period", 4*time.Second, "time between two tries to lead or to renew")
	fl.StringVar(&o.MetricsAddress, "metrics", ":9090", "address of /metrics, by https to who may read it; 0 for none")
	fl.BoolVar(&o.InsecureMetrics, "insecure-metrics", false, "serve /metrics by http to whoever asks")
	fl.StringVar(&o.ProbeAddress, "probes", ":8082", "address of /healthz and /readyz; 0 for none")
	fl.IntVar(&o.Concurrency, "concurrency", 8, "how many endpoints are reconciled at once")
	fl.CountVarP(&verbosity, "verbose", "v", "log more")
	return cmd
}

// newClusterLogger is newLogger, and takes in what the libraries of Kubernetes log by
// themselves, which else has a form of its own.
func newClusterLogger(w io.Writer, verbosity int) logr.Logger {
	l := newLogger(w, verbosity)
	klog.SetLogger(l.WithName("kubernetes"))
	ctrllog.SetLogger(l)
	return l
}

// clusterConfig says how to reach the API server.
func clusterConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		if c, err := rest.InClusterConfig(); err == nil {
			return c, nil
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster is known: run in a pod, or give --kubeconfig: %w", err)
	}
	return c, nil
}
