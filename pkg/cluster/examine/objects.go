package examine

import "time"

// The parts of Kubernetes' objects that the checks look at. The types of k8s.io/api would be most of the program.

type list[T any] struct {
	Items []T `json:"items"`
}

type object struct {
	Metadata struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
		// Annotations of a StorageClass say whether it is the default.
		Annotations map[string]string `json:"annotations"`
		Created     time.Time         `json:"creationTimestamp"`
	} `json:"metadata"`
}

// name is the object's, as kubectl writes it.
func (o object) name() string {
	if o.Metadata.Namespace == "" {
		return o.Metadata.Name
	}
	return o.Metadata.Namespace + "/" + o.Metadata.Name
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Changed is of nodes; other kinds have it too, and nothing here reads it.
	Changed time.Time `json:"lastTransitionTime"`
}

type conditions struct {
	Conditions []condition `json:"conditions"`
}

func (c conditions) of(kind string) condition {
	for _, one := range c.Conditions {
		if one.Type == kind {
			return one
		}
	}
	return condition{Type: kind, Status: "Unknown", Reason: "Missing", Message: "there is no condition " + kind}
}

type node struct {
	object

	Status conditions `json:"status"`
}

type pod struct {
	object

	Status struct {
		conditions

		Phase string `json:"phase"`
	} `json:"status"`
}

type serviceRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (r serviceRef) String() string { return r.Namespace + "/" + r.Name }

type service struct {
	object

	Spec struct {
		Type string `json:"type"`
	} `json:"spec"`
	Status struct {
		LoadBalancer struct {
			Ingress []any `json:"ingress"`
		} `json:"loadBalancer"`
	} `json:"status"`
}

type endpointSlice struct {
	object

	Endpoints []struct {
		Conditions struct {
			// Ready is nil for "unknown", which clients take as ready (EndpointConditions of discovery.k8s.io/v1).
			Ready *bool `json:"ready"`
		} `json:"conditions"`
	} `json:"endpoints"`
}

type apiService struct {
	object

	Spec struct {
		Service *serviceRef `json:"service"`
	} `json:"spec"`
	Status conditions `json:"status"`
}

type webhooks struct {
	object

	Webhooks []struct {
		Name   string `json:"name"`
		Client struct {
			Service *serviceRef `json:"service"`
		} `json:"clientConfig"`
		Policy  string `json:"failurePolicy"`
		Timeout int    `json:"timeoutSeconds"`
	} `json:"webhooks"`
}

type claim struct {
	object

	Spec struct {
		Class *string `json:"storageClassName"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

type storageClass struct {
	object

	Provisioner string `json:"provisioner"`
	Binding     string `json:"volumeBindingMode"`
}

type ingress struct {
	object

	Spec struct {
		Class string `json:"ingressClassName"`
	} `json:"spec"`
	Status struct {
		LoadBalancer struct {
			Ingress []any `json:"ingress"`
		} `json:"loadBalancer"`
	} `json:"status"`
}

type signingRequest struct {
	object

	Spec struct {
		Signer string `json:"signerName"`
		User   string `json:"username"`
	} `json:"spec"`
	Status struct {
		conditions

		Certificate []byte `json:"certificate"`
	} `json:"status"`
}
