// SPDX-License-Identifier: Apache-2.0
#include "rollouts/support/page_memory_definitions.h"
