// MTLDefines.h: how Metal declares what it exports.
#pragma once

#import <Foundation/Foundation.h>

#define MTL_EXTERN extern "C"
#define MTL_EXPORT
