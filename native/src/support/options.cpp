// SPDX-License-Identifier: Apache-2.0
#include "rollouts/support/options_definitions.h"
